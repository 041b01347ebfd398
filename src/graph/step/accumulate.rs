//! Accumulation of gradients.

use std::sync::Arc;

use crate::array::{Access, DType, RunGuard, Storage};
use crate::graph::arena::describe::explain_sum;
use crate::graph::arena::{Ix, NONE};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::step::backward::add_to;
use crate::graph::step::operand::Operand;
use crate::{Error, Result};

/// A gradient, and the contributions to add to it.
pub(crate) struct GradientSum<'a> {
    /// The gradient that is added to.
    pub(crate) to: NdArray,
    /// The tensor that it belongs to.
    pub(crate) tensor: Ix,
    /// The contribution.
    pub(crate) more: &'a Arc<Storage>,
    /// True if nothing else uses the contribution, so its memory may be reused.
    pub(crate) is_ours: bool,
}

/// Adds the contributions of each sum. Steps that can fail come first.
pub(crate) fn all(sums: &[GradientSum<'_>]) -> Result<()> {
    for GradientSum { to, more, .. } in sums {
        if more.len() != to.shape.size() || to.storage.len() != more.len() {
            return Err(Error::Graph(format!(
                "backward: expected variables that keep their shapes during the run, but one is of shape {} now and \
                 its gradient has {} elements; run forward() again",
                to.shape,
                more.len()
            )));
        }
    }
    let moves =
        |sum: &GradientSum<'_>| sum.is_ours && sum.to.storage.is_zero() && !sum.to.storage.is_narrowed();
    for sum in sums.iter().filter(|sum| !moves(sum)) {
        let dtype = type_of_sum(&sum.to.storage, sum.more);
        sum.more.access(if dtype == DType::F64 { DType::F64 } else { DType::F32 }, Access::Read)?;
        sum.to.storage.access(dtype, Access::ReadWrite).map_err(|error| explain_sum(error, sum.tensor))?;
    }
    for sum in sums {
        if !(moves(sum) && sum.more.give_to(&sum.to.storage)) {
            add_into(&sum.to, sum.more)?;
        }
    }
    Ok(())
}

/// Adds a gradient to an array, in the type of the array.
pub(crate) fn add_into(sum: &NdArray, more: &Arc<Storage>) -> Result<()> {
    let stored = type_of_sum(&sum.storage, more);
    let dtype = if stored == DType::F64 { DType::F64 } else { DType::F32 };
    let _run = RunGuard::new(); // for both arrays
    let from = more.access(dtype, Access::Read)?;
    add_to(&mut Operand::new(NONE, sum.clone(), dtype, stored), from)
}

/// The type in which a gradient is added to another.
pub(crate) fn type_of_sum(sum: &Storage, more: &Storage) -> DType {
    let float = |s: &Storage| s.dtype().filter(|dtype| dtype.is_float());
    float(sum).or_else(|| float(more)).unwrap_or(DType::F32)
}
