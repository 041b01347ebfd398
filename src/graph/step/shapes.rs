//! Output shapes of an operation, from the shapes or values of its inputs.

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, DType, Shape};
use crate::graph::arena::NONE;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context::Precision;
use crate::graph::step::operand::{Operand, RunBuffers};
use crate::kernels::stop;
use crate::ops::Op;

/// Output shapes of an operation on these arrays, which computes with this precision.
pub(crate) fn shapes_of(op: &Op, x: &[NdArray], compute: Precision) -> Result<crate::ops::Shapes> {
    let shapes: SmallVec<[&Shape; 4]> = x.iter().map(|x| &x.shape).collect();
    match op.facts().shaped_by.and_then(|by| x.get(by)) {
        Some(decisive) => stop::guarded(|| op.shapes_by(&shapes, Some(&values_as_read(decisive, compute)?))),
        None => op.shapes(&shapes),
    }
}

/// The elements of an array as a kernel of this precision reads them: kernels and shapes must count the same values.
/// Integers keep their digits.
fn values_as_read(x: &NdArray, compute: Precision) -> Result<Vec<f64>> {
    let is_whole = x.storage.dtype().is_none_or(DType::is_integer);
    let dtype = if is_whole { DType::F64 } else { compute.dtype() };
    let (_held, at) = x.storage.pin(dtype, Access::Read)?;
    let mut rounded = RunBuffers::new();
    let at = Operand::new(NONE, x.clone(), dtype, dtype).rounded(at, compute.rounds(), &mut rounded)?;
    let n = x.shape.size();
    // SAFETY: this many elements of this type are held here.
    unsafe {
        Ok(match dtype {
            DType::F64 => std::slice::from_raw_parts(at.cast(), n).to_vec(),
            _ => std::slice::from_raw_parts(at.cast::<f32>(), n).iter().map(|v| f64::from(*v)).collect(),
        })
    }
}
