//! Operations: what each one is called, takes, computes and differentiates to.
//!
//! A new operation is one `op!` declaration and one trait impl in a family file, listed in that file's `OPS`. The Python
//! function, its signature, docstring and stub follow from the declaration; its tests from one row in `tests/cases`.
//!
//! There are three ways to say what an operation computes: [`Unary`] and [`Binary`] take one formula on numbers, and
//! everything else implements [`Compute`]. The engine sees all of them as [`Operation`].

mod activation;
mod affine;
mod arithmetic;
mod array;
mod batch_matmul;
mod batch_normalization;
mod bound;
#[cfg(test)]
mod checks;
mod choice;
mod comparison;
mod compute;
mod convolution;
mod cumulative;
mod deconvolution;
mod depthwise;
mod diagonal;
mod doubled;
mod drawing;
mod elementwise;
mod embed;
mod erase;
mod extreme;
mod group_normalization;
mod indexing;
mod interpolate;
mod join;
mod label;
mod logical;
mod loops;
mod loss;
mod masking;
mod math;
mod max_pooling;
mod nary;
mod nd;
mod norm;
mod normalization;
mod operation;
mod order;
mod parts;
mod pooling;
mod powers;
mod random;
mod rectifier;
mod reduction;
mod regrid;
mod repeat;
mod run;
mod scatter;
mod sequence;
mod shapes;
mod slicing;
mod softmax;
mod spatial;
pub(crate) mod spec;
mod special;
pub mod symbol;
#[cfg(test)]
mod testing;
mod trigonometry;
mod weight_normalization;
mod whole;

pub use crate::kernels::gemm::{Activation, Rows, Then};
pub use bound::Entry;
pub use compute::{Alias, Compute, Reads};
pub use elementwise::{Binary, Unary};
pub use loops::{Loops, Part, Pieces};
#[doc(hidden)]
pub use operation::Call;
pub use operation::{Array, OnArrays, Op, Operation};
pub use parts::{Cut, Indexed, Put};
#[doc(hidden)]
pub use run::{Backward, Grad, Memory, Run, State};
pub use shapes::{InputShapes, Shapes};
pub use spec::{Arg, ArgType, Declared, Input, Kind, Spec, Value};
pub use symbol::{Sym, Symbols};

use crate::array::Shape;
use crate::{Error, Result};
use spec::op;

/// Every operation, family by family: the single source for Python, stubs, docs and tests.
pub fn registry() -> impl Iterator<Item = &'static Entry> {
    [
        activation::OPS,
        affine::OPS,
        arithmetic::OPS,
        powers::OPS,
        array::OPS,
        batch_matmul::OPS,
        batch_normalization::OPS,
        choice::OPS,
        comparison::OPS,
        convolution::OPS,
        deconvolution::OPS,
        depthwise::OPS,
        embed::OPS,
        erase::OPS,
        doubled::OPS,
        group_normalization::OPS,
        norm::OPS,
        cumulative::OPS,
        diagonal::OPS,
        extreme::OPS,
        indexing::OPS,
        interpolate::OPS,
        join::OPS,
        label::OPS,
        logical::OPS,
        loss::OPS,
        masking::OPS,
        math::OPS,
        max_pooling::OPS,
        nary::OPS,
        nd::OPS,
        order::OPS,
        pooling::OPS,
        random::OPS,
        rectifier::OPS,
        reduction::OPS,
        repeat::OPS,
        scatter::OPS,
        sequence::OPS,
        slicing::OPS,
        softmax::OPS,
        special::OPS,
        trigonometry::OPS,
        weight_normalization::OPS,
        whole::OPS,
    ]
    .into_iter()
    .flatten()
}

/// The operation that Python calls `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    registry().find(|e| e.spec.name == name)
}

/// The shape of one output that is like input 0.
#[allow(clippy::unnecessary_wraps)] // it is what `shapes` returns
pub(crate) fn like(x: &InputShapes<'_>) -> Result<Shapes> {
    one(x.get(0).clone())
}

/// One output of this shape.
#[allow(clippy::unnecessary_wraps)] // it is what `shapes` returns
pub(crate) fn one(shape: impl Into<Shape>) -> Result<Shapes> {
    let mut shapes = Shapes::new();
    shapes.push(shape.into());
    Ok(shapes)
}

/// That an argument is zero or more.
pub(crate) fn not_negative(op: &str, arg: &str, value: f64) -> Result<()> {
    if value >= 0.0 { Ok(()) } else { Err(Error::argument(op, arg, "zero or more", value)) }
}

#[cfg(test)]
mod tests {
    use super::testing::{Tensor, check_gradient};
    use super::{Op, Value, find};

    fn op(name: &str, values: &[Value]) -> Op {
        find(name).expect("is registered").bind(values, u64::MAX).expect("binds")
    }

    #[test]
    fn smooth_functions_have_true_gradients() {
        for name in ["exp", "sin", "cos", "tanh", "sigmoid", "relu", "asinh", "erf", "identity"] {
            let values: &[Value] = if name == "relu" { &[Value::Bool(false)] } else { &[] };
            check_gradient(&op(name, values), &[Tensor::sample([3, 4], 1)], &[true]);
        }
    }

    #[test]
    fn products_and_sums_broadcast_both_ways() {
        for name in ["add2", "sub2", "mul2", "div2"] {
            let x = [Tensor::sample([3, 1, 2], 1), Tensor::sample([4, 2], 2)];
            check_gradient(&op(name, &[Value::Bool(false)]), &x, &[true, true]);
        }
    }

    #[test]
    fn arrays_are_rearranged_and_back() {
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
