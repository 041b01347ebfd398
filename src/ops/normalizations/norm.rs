//! `norm`: the p-norm of the elements along axes.

use crate::array::Shape;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::reduce::PowerSums;
use crate::kernels::{Float, Number, reduce};
use crate::ops::normalizations::weight_normalization::NormNormalization;
use crate::ops::pointwise::powers::power;
use crate::ops::reductions::reduction::{ascending, reduced, spread_each, spread_symbol};
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Norm>()];

op! {
    /// Norm along axes: `y = (sum |x|^p)^(1 / p)`. The gradient is zero where the norm is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     p: Order of the norm, a finite number of 1 or more; 2 by default.
    ///     axis: Axis or axes to take the norm over, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`.
    ///
    /// Raises:
    ///     ArgumentError: If `p` is less than 1 or not finite: the norm of infinite order is `max(abs(x))`.
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[3.0, 4.0], [6.0, 8.0]])
    ///     >>> F.norm(x, axis=1).data
    ///     array([ 5., 10.], dtype=float32)
    ///     >>> F.norm(x, p=1, axis=1).data
    ///     array([ 7., 14.], dtype=float32)
    /// ```
    Norm = norm(x; p: Option<f64> = None, axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

impl Norm {
    /// The order of the norm, 2 by default.
    fn p(&self) -> f64 {
        self.p.unwrap_or(2.0)
    }
}

/// The derivative of the p-norm `y` by its element `x`, for nonzero `y`.
#[inline(always)]
fn slope<N: Number>(x: N, y: N, p: f64) -> N {
    if p == 2.0 {
        return x / y;
    }
    let sign = N::select(x.lt(N::all(0.0)), N::all(-1.0), N::all(1.0)); // as that of `abs`
    if p == 1.0 { sign } else { sign * power(x.abs() / y, p - 1.0) }
}

/// The derivative of the p-norm by an element. `unit` is the element divided by the norm.
pub(crate) fn slope_of_unit(unit: Sym, p: f64) -> Sym {
    // Even powers are written without |x|, which cannot be differentiated twice at zero.
    if p == 2.0 {
        return unit;
    }
    let zero = Sym::Const(0.0);
    let sign = unit.gt(zero) - unit.lt(zero);
    if p == 1.0 { sign } else { unit.abs().pow(Sym::Const(p - 1.0)) * sign }
}

/// The sums of `|x|^p` over `axes`, before `eps` is added.
pub(crate) fn powers<T: Float>(x: &[T], shape: &Shape, axes: &[usize], p: f64, eps: f64) -> PowerSums {
    // A separate loop for each common order.
    match p {
        2.0 => reduce::power_sums(
            x,
            shape,
            axes,
            (p, eps),
            #[inline(always)]
            |x| x * x,
            #[inline(always)]
            |x| x * x,
        ),
        1.0 => reduce::power_sums(x, shape, axes, (p, eps), T::abs, f64::abs),
        _ => reduce::power_sums(
            x,
            shape,
            axes,
            (p, eps),
            #[inline(always)]
            |x| power(x.abs(), p),
            #[inline(always)]
            |x| power(x, p),
        ),
    }
}

/// Writes or adds `gy` times the derivative of the norm. Computes in float64.
#[cold]
fn put_slopes<T: Float>(
    Grad { data, accumulate }: Grad<'_, T>,
    (x, shape): (&[T], &Shape),
    (gy, kept): (&[T], &Shape),
    sums: &PowerSums,
) {
    let (roots, p) = (sums.roots(), sums.p());
    let roots = &roots[..];
    BroadcastLayout::new(kept, shape).update(
        x,
        data,
        #[inline(always)]
        move |i, x, g| {
            let [unit, root] = roots[i];
            let is_zero = root == 0.0 && p != 1.0;
            let by = if is_zero { 0.0 } else { slope(x.real() / unit, root, p) };
            let own = T::of(gy[i].real() * by);
            if accumulate { g + own } else { own }
        },
    );
}

impl Compute for Norm {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if self.p() >= 1.0 && self.p().is_finite() {
            return one(reduced("norm", x.get(0), self.axis.as_deref(), self.keepdims)?);
        }
        Err(Error::argument("norm", "p", "a finite number of 1 or more", self.p()))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = ascending("norm", run.x_shape(0), self.axis.as_deref())?;
        let (y, p) = (run.y(0), self.p());
        let sums = powers(run.x(0), run.x_shape(0), &axes, p, 0.0);
        y.iter_mut().enumerate().for_each(|(i, y)| {
            *y = match (sums.plain(i), p) {
                (Some(sum), 2.0) => T::of(sum.sqrt()),
                (Some(sum), 1.0) => T::of(sum),
                (Some(sum), _) => T::of(sum).pow(T::of(1.0 / p)),
                (None, _) => {
                    let [unit, root] = sums.root(i);
                    T::of(unit * root)
                }
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, x, y, gy) = (run.x_shape(0), run.x(0), run.y(0), run.gy(0));
        let kept = reduced("norm", shape, self.axis.as_deref(), true)?;
        let axes = ascending("norm", shape, self.axis.as_deref())?;
        let Some(gx) = run.gx(0) else { return Ok(()) };
        // A norm near the limits of its type is too inexact to divide by.
        let least = T::all(4096.0) * T::MIN_POSITIVE;
        if y.iter().any(|y| *y > T::MAX || (*y < least && *y != T::ZERO)) {
            put_slopes(gx, (x, shape), (gy, &kept), &powers(x, shape, &axes, self.p(), 0.0));
            return Ok(());
        }
        // A separate loop for each common order.
        macro_rules! by {
            ($p:expr) => {
                spread_each(
                    gx,
                    ([x], shape),
                    ([y, gy], &kept),
                    #[inline(always)]
                    move |[x], [y, gy]| {
                        let is_zero = $p != 1.0 && y.eq(T::ZERO);
                        T::select(is_zero, T::ZERO, gy * slope(x, T::select(is_zero, T::ONE, y), $p))
                    },
                )
            };
        }
        match self.p() {
            1.0 => by!(1.0),
            2.0 => by!(2.0),
            p => by!(p),
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (p, gy) = (self.p(), spread_symbol("norm", s, self.axis.as_deref()));
        if p == 1.0 {
            return vec![Some(gy * slope(s.x(0), Sym::Const(1.0), p))];
        }
        // The norm itself may be out of range, so the formula uses the normalized elements. They are always in range,
        // and zero at zero.
        let unit = NormNormalization { p: self.p, axes: self.axis.clone(), eps: 0.0 };
        let unit = Sym::apply(unit, &[s.x(0)]);
        vec![Some(gy * slope_of_unit(unit, p))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::ALL
    }
}
