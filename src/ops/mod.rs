//! Operations: names, inputs, kernels and gradients.
//!
//! A new operation is one `op!` declaration and one trait impl in a family file, listed in that file's `OPS`. The
//! Python function, its signature, docstring and stub follow from the declaration. Its tests follow from one row in
//! `tests/operations/cases`.
//!
//! An operation implements one of three traits: [`Unary`] and [`Binary`] take one formula on numbers, and everything
//! else implements [`Compute`]. The engine uses all of them as [`Operation`].

pub(crate) mod arrangement;
#[cfg(test)]
mod checks;
pub(crate) mod contract;
mod expressions;
mod fused;
mod indexing;
mod linear_algebra;
mod losses;
mod normalizations;
mod pointwise;
mod products;
mod quantization;
mod randomness;
mod recurrent;
mod reductions;
mod signal;
mod spatial;
#[cfg(test)]
mod testing;

#[doc(hidden)]
pub use crate::kernels::{Activation, RowFunctions, Tail};
pub use arrangement::parts::{Cut, Indexed, Put};
#[doc(hidden)]
pub use contract::backward::{Backward, Grad};
pub use contract::bound::Entry;
#[doc(hidden)]
pub use contract::call::{Call, InBFloat16, Memory, State};
pub use contract::compute::Compute;
pub use contract::facts::{Alias, Compares, Facts, InputFacts, Reads};
pub use contract::formula::{Binary, Unary};
#[doc(hidden)]
pub use contract::loops::Loops;
pub use contract::operation::{Array, OnArrays, Op, Operation};
#[doc(hidden)]
pub use contract::part::{ChunkedForward, Part};
#[doc(hidden)]
pub use contract::run::Run;
pub use contract::shapes::{InputShapes, Shapes};
pub use contract::spec::{Arg, ArgType, Declared, Input, Kind, Spec, Value};
pub use contract::symbol::{Sym, Symbols};
#[doc(hidden)]
pub use spatial::non_max_suppression::{ONNXNonMaxSuppression, chosen_boxes};

use crate::array::Shape;
use crate::{Error, Result};
use contract::spec::op;
pub use contract::symbol;

/// Creates what a thread needs before its first task, see [`crate::array::begin_thread`].
pub(crate) fn begin_thread() {
    crate::kernels::begin_thread();
    symbol::begin_thread();
}

/// Every operation, family by family: the single source for Python, stubs, docs and tests.
pub fn registry() -> impl Iterator<Item = &'static Entry> {
    [
        pointwise::activation::OPS,
        products::affine::OPS,
        pointwise::arithmetic::OPS,
        pointwise::powers::OPS,
        arrangement::array::OPS,
        products::attention::OPS,
        products::batch_matmul::OPS,
        normalizations::batch_normalization::OPS,
        fused::batch_normalization::OPS,
        fused::convolution::OPS,
        pointwise::selection::OPS,
        pointwise::comparison::OPS,
        spatial::convolution::OPS,
        spatial::deconvolution::OPS,
        spatial::depthwise::OPS,
        indexing::embed::OPS,
        randomness::random_erase::OPS,
        pointwise::concatenated_relu::OPS,
        normalizations::group_normalization::OPS,
        normalizations::norm::OPS,
        losses::confusion::OPS,
        reductions::cumulative::OPS,
        arrangement::diagonal::OPS,
        reductions::extreme::OPS,
        signal::fft::OPS,
        indexing::gather::OPS,
        spatial::interpolate::OPS,
        linear_algebra::inverse::OPS,
        linear_algebra::cholesky::OPS,
        arrangement::concatenate::OPS,
        arrangement::concatenate_parts::OPS,
        losses::classification::OPS,
        pointwise::logical::OPS,
        losses::loss::OPS,
        indexing::masking::OPS,
        pointwise::math::OPS,
        normalizations::mean_subtraction::OPS,
        spatial::max_pooling::OPS,
        spatial::modulated_convolution::OPS,
        pointwise::nary::OPS,
        indexing::gather_nd::OPS,
        reductions::sorting::OPS,
        recurrent::cells::OPS,
        recurrent::levels::OPS,
        recurrent::packing::OPS,
        spatial::pooling::OPS,
        randomness::distributions::OPS,
        pointwise::rectifier::OPS,
        reductions::reduction::OPS,
        pointwise::remainder::OPS,
        arrangement::repeat::OPS,
        indexing::scatter::OPS,
        arrangement::sequence::OPS,
        arrangement::shape_of::OPS,
        arrangement::slicing::OPS,
        reductions::softmax::OPS,
        pointwise::special::OPS,
        normalizations::spectral_norm::OPS,
        signal::stft::OPS,
        pointwise::trigonometry::OPS,
        arrangement::unique::OPS,
        normalizations::weight_normalization::OPS,
        reductions::whole_array::OPS,
        spatial::depthwise_deconvolution::OPS,
        spatial::adaptive_separable_convolution::OPS,
        spatial::deformable_convolution::OPS,
        spatial::nms_detection::OPS,
        spatial::non_max_suppression::OPS,
        spatial::patch_correlation::OPS,
        spatial::roi_align::OPS,
        spatial::warp::OPS,
        normalizations::clip_gradient::OPS,
        reductions::top_k::OPS,
        randomness::choice::OPS,
        randomness::jitter::OPS,
        randomness::image_augmentation::OPS,
        quantization::steps::OPS,
        quantization::prune::OPS,
        quantization::levels::OPS,
        quantization::integer_arrays::OPS,
        quantization::block_layers::OPS,
        quantization::integer_layers::OPS,
        quantization::integer_parts::OPS,
        quantization::integer_pooling::OPS,
        quantization::min_max::OPS,
        quantization::binary_layers::OPS,
        quantization::incremental::OPS,
    ]
    .into_iter()
    .flatten()
}

/// The operation with the Python name `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    registry().find(|e| e.spec.name == name)
}

/// The shape of a single output that has the shape of input 0.
#[allow(clippy::unnecessary_wraps)] // `shapes` returns a result
pub(crate) fn like(x: &InputShapes<'_>) -> Result<Shapes> {
    one(x.get(0).clone())
}

/// The shape of a single output.
#[allow(clippy::unnecessary_wraps)] // `shapes` returns a result
pub(crate) fn one(shape: impl Into<Shape>) -> Result<Shapes> {
    let mut shapes = Shapes::new();
    shapes.push(shape.into());
    Ok(shapes)
}

/// Returns an error if an argument is negative.
pub(crate) fn not_negative(op: &str, arg: &str, value: f64) -> Result<()> {
    if value >= 0.0 { Ok(()) } else { Err(Error::argument(op, arg, "zero or more", value)) }
}

#[cfg(test)]
mod tests {
    use super::Value;
    use super::testing::{Tensor, check_gradient, op};

    #[test]
    fn unary_functions_have_true_gradients() {
        for name in ["exp", "sin", "cos", "tanh", "sigmoid", "relu", "asinh", "erf", "identity"] {
            let values: &[Value] = if name == "relu" { &[Value::Bool(false)] } else { &[] };
            check_gradient(&op(name, values), &[Tensor::sample([3, 4], 1)], &[true]);
        }
    }

    #[test]
    fn broadcast_arithmetic_has_true_gradients() {
        for name in ["add2", "sub2", "mul2", "div2"] {
            let x = [Tensor::sample([3, 1, 2], 1), Tensor::sample([4, 2], 2)];
            check_gradient(&op(name, &[Value::Bool(false)]), &x, &[true, true]);
        }
    }

    #[test]
    fn transpose_broadcast_sum_and_where_have_true_gradients() {
        check_gradient(
            &op("transpose", &[Value::Ints(vec![2, 0, 1])]),
            &[Tensor::sample([2, 3, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("broadcast", &[Value::Ints(vec![2, 3, 4])]),
            &[Tensor::sample([2, 1, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("sum", &[Value::Ints(vec![1]), Value::Bool(false)]),
            &[Tensor::sample([2, 3, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("where", &[]),
            &[Tensor::new([2], &[1.0, 0.0]), Tensor::sample([2, 2], 1), Tensor::sample([2, 2], 2)],
            &[false, true, true],
        );
    }
}
