//! The norm of the elements along axes.

use crate::kernels::{Float, Number, reduce};
use crate::ops::pointwise::powers::power;
use crate::ops::reductions::reduction::{ascending, reduced, spread_each, spread_symbol};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Norm>()];

op! {
    /// Norm along axes: `y = (sum |x|^p)^(1 / p)`. Its gradient where the norm is zero is zero.
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
    Norm = norm(x; p: Option<f64> = None, axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

impl Norm {
    fn p(&self) -> f64 {
        self.p.unwrap_or(2.0)
    }
}

/// The derivative of the norm `y`, of order `p`, by its element `x`; `y` is not zero.
#[inline(always)]
fn slope<N: Number>(x: N, y: N, p: f64) -> N {
    if p == 2.0 {
        return x / y;
    }
    let sign = N::select(x.lt(N::all(0.0)), N::all(-1.0), N::all(1.0)); // as that of `abs`
    if p == 1.0 { sign } else { sign * power(x.abs() / y, p - 1.0) }
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
        let (x, shape, y, p) = (run.x(0), run.x_shape(0), run.y(0), self.p());
        let sums = match p {
            2.0 => reduce::sums(
                x,
                shape,
                &axes,
                #[inline(always)]
                |x| x * x,
            ),
            1.0 => reduce::sums(x, shape, &axes, T::abs),
            _ => reduce::sums(
                x,
                shape,
                &axes,
                #[inline(always)]
                |x| power(x.abs(), p),
            ),
        };
        y.iter_mut().zip(&*sums).for_each(|(y, sum)| {
            *y = match p {
                2.0 => T::of(sum.sqrt()),
                1.0 => T::of(*sum),
                _ => T::of(*sum).pow(T::of(1.0 / p)),
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, x, y, gy) = (run.x_shape(0), run.x(0), run.y(0), run.gy(0));
        let kept = reduced("norm", shape, self.axis.as_deref(), true)?;
        let Some(gx) = run.gx(0) else { return Ok(()) };
        // The loop of each order is one of its own.
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
        let shape = s.x(0).shape();
        let kept = reduced("norm", &shape, self.axis.as_deref(), true).unwrap_or_default();
        let (zero, one) = (Sym::Const(0.0), Sym::Const(1.0));
        // A norm of zero has elements of zero, whose derivative comes out as zero whatever they are divided by.
        let y = Sym::select(s.y(0).eq(zero), one.broadcast(&s.y(0).shape()), s.y(0));
        let y = y.reshape(&kept).broadcast(&shape);
        vec![Some(spread_symbol("norm", s, self.axis.as_deref()) * slope(s.x(0), y, self.p()))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::ALL
    }
}
