//! Output shapes of an operation, from the shapes or values of its inputs.

use std::borrow::Cow;

use half::{bf16, f16};
use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, DType, Shape};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context::Precision;
use crate::kernels::stop;
use crate::ops::Op;

/// Output shapes of an operation on these arrays, which computes with this precision.
pub(crate) fn shapes_of(op: &Op, x: &[NdArray], compute: Precision) -> Result<crate::ops::Shapes> {
    let shapes: SmallVec<[&Shape; 4]> = x.iter().map(|x| &x.shape).collect();
    match op.facts().shaped_by.and_then(|by| x.get(by)) {
        Some(decisive) => {
            let (_held, values) = decisive.storage.pin(DType::F64, Access::Read)?;
            // SAFETY: this many elements of this type are held here.
            let values: &[f64] = unsafe { std::slice::from_raw_parts(values.cast(), decisive.shape.size()) };
            let read = decisive.storage.dtype().filter(|dtype| !dtype.is_integer()).and(as_read(compute));
            let values = match read {
                Some(read) => Cow::Owned(values.iter().copied().map(read).collect()),
                None => Cow::Borrowed(values),
            };
            stop::guarded(|| op.shapes_by(&shapes, Some(&values)))
        }
        None => op.shapes(&shapes),
    }
}

/// Rounds a real number as a kernel does when it reads it. None if it reads all digits. Kernels and shapes must count
/// the same values.
fn as_read(compute: Precision) -> Option<fn(f64) -> f64> {
    match (compute, compute.rounds().is_some()) {
        (Precision::Double, _) => None,
        (Precision::Half, true) => Some(|v| f16::from_f32(v as f32).to_f64()),
        (Precision::BFloat16, true) => Some(|v| bf16::from_f32(v as f32).to_f64()),
        _ => Some(|v| f64::from(v as f32)),
    }
}
