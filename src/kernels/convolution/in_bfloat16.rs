//! Convolution of values in bfloat16. Kernels of one element are products in bfloat16, and so is implicit GEMM on
//! machines with instructions for it. Other algorithms compute in `f32`, on values that are widened.

use super::descriptor::Pass;
use super::geometry::Geometry;
use super::pairs;
use super::pointwise::Pointwise;
use super::select::{Method, pays_in_rows, select};
use super::weight::Weight;
use crate::array::OutOfMemory;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::tiles;
use crate::kernels::sixteen_bits::{Values, ValuesMut};

/// True if a pass is computed by products in bfloat16.
fn is_product<T: Float>(g: &Geometry, of: Pass, values: Values<'_, T>, has_bias: bool) -> bool {
    let is_pointwise = || match select::<T>(g, of, has_bias, true) {
        Method::GemmRows => pays_in_rows(g),
        method => method == Method::Pointwise,
    };
    !matches!(values, Values::Exact(_)) && is_pointwise()
}

/// As [`super::forward`], for values of any type.
///
/// # Errors
/// As [`super::forward`].
pub fn forward<'w, T: Float>(
    g: &Geometry,
    x: Values<'_, T>,
    w: impl Into<Weight<'w, T>>,
    mut y: ValuesMut<'_, T>,
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let w = w.into();
    if is_product(g, Pass::Output, x, epilogue.row_bias.is_some()) {
        g.check(x.len(), w.values.len(), y.len());
        Pointwise::new(g).forward(x, w.values, y, epilogue);
        return Ok(());
    }
    if pairs::forward(g, x, w.values, &mut y, epilogue, tiles::are_used())? {
        return Ok(());
    }
    x.widened(|x| y.widened(epilogue.accumulate, |y| super::forward(g, x, w, y, epilogue)))
}

/// As [`super::input_gradient`], for values of any type.
///
/// # Errors
/// As [`super::forward`].
pub fn input_gradient<'w, T: Float>(
    g: &Geometry,
    gy: Values<'_, T>,
    w: impl Into<Weight<'w, T>>,
    mut gx: ValuesMut<'_, T>,
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let w = w.into();
    if is_product(g, Pass::InputGradient, gy, epilogue.row_bias.is_some()) && epilogue.tail.rows.is_none() {
        g.check(gx.len(), w.values.len(), gy.len());
        Pointwise::new(g).input_gradient(gy, w.values, gx, epilogue);
        return Ok(());
    }
    if pairs::input_gradient(g, gy, w.values, &mut gx, epilogue, tiles::are_used())? {
        return Ok(());
    }
    gy.widened(|gy| gx.widened(epilogue.accumulate, |gx| super::input_gradient(g, gy, w, gx, epilogue)))
}

/// As [`super::weight_gradient`], for values of any type.
///
/// # Errors
/// As [`super::forward`].
pub fn weight_gradient<T: Float>(
    g: &Geometry,
    x: Values<'_, T>,
    gy: Values<'_, T>,
    gw: &mut [T],
    accumulate: bool,
) -> Result<(), OutOfMemory> {
    if is_product(g, Pass::WeightGradient, x, false) && x.len() > 0 && gy.len() > 0 {
        g.check(x.len(), gw.len(), gy.len());
        return Pointwise::new(g).weight_gradient(x, gy, gw, accumulate);
    }
    if pairs::weight_gradient(g, x, gy, gw, accumulate, tiles::are_used())? {
        return Ok(());
    }
    x.widened(|x| gy.widened(|gy| super::weight_gradient(g, x, gy, gw, accumulate)))
}
