//! Normalizations by a norm: weight_normalization, norm_normalization.

use crate::array::Shape;
use crate::kernels::reduce::PowerSums;
use crate::kernels::scratch::{self, List};
use crate::kernels::{Float, broadcast::BroadcastLayout, map, reduce};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::normalizations::layer_normalization::only;
use crate::ops::normalizations::norm::{powers, slope_of_unit};
use crate::ops::pointwise::powers::power;
use crate::ops::reductions::reduction::{reduced, spread_each};
use crate::ops::{
    Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, not_negative, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<WeightNormalization>(), Entry::of::<NormNormalization>()];

/// Computes `y = x * factor(i) / (sum(|x|^p) + eps)^(1 / p)`, or zero if the sum is zero. `kept` is the shape of the
/// sums, and `i` is the index of a sum. `scale` computes the same factor in the type of the elements.
fn scaled<T: Float>(
    (x, y, shape): (&[T], &mut [T], &Shape),
    (sums, kept): (&PowerSums, &Shape),
    scale: impl Fn(T, usize) -> T,
    factor: impl Fn(usize) -> f64,
) {
    let scales: List<T> =
        (0..sums.len()).map(|i| sums.plain(i).map_or(T::ZERO, |sum| scale(T::of(sum), i))).collect();
    BroadcastLayout::new(shape, kept).map_distinct(
        x,
        &scales,
        y,
        #[inline(always)]
        |x, s| x * s,
    );
    if sums.all_plain() {
        return;
    }
    let wide: List<Option<[f64; 3]>> = (0..sums.len())
        .map(|i| {
            let [unit, root] = sums.root(i);
            sums.plain(i).is_none().then(|| [unit, root, factor(i)])
        })
        .collect();
    let wide = &wide[..];
    BroadcastLayout::new(kept, shape).update(
        x,
        y,
        #[inline(always)]
        move |i, x, y| wide[i].map_or(y, |[unit, root, factor]| T::of(x.real() / unit / root * factor)),
    );
}

/// The shape of sums along axes that keep length one.
fn kept(shape: &Shape, axes: &[usize]) -> Shape {
    only(shape, &(0..shape.ndim()).map(|i| !axes.contains(&i)).collect::<Vec<_>>())
}

/// The sums of `gy * unit`: for each unit vector, the part of the gradient along it.
fn along<T: Float>(gy: &[T], unit: &[T], shape: &Shape, axes: &[usize], n: usize) -> List<T> {
    let mut along = List::repeat(T::ZERO, n);
    scratch::with(gy.len(), |products| {
        map::put_of(
            products,
            false,
            [gy, unit],
            #[inline(always)]
            |[gy, unit]| gy * unit,
        );
        reduce::sum(products, shape, axes, &mut along);
    });
    along
}

/// `sum^(-1 / p)`, but zero for a zero sum, because a zero vector has no direction.
#[inline(always)]
fn inverse_root<T: Float>(sum: T, p: f64) -> T {
    if sum == T::ZERO {
        return T::ZERO;
    }
    if p == 2.0 { T::ONE / sum.sqrt() } else { sum.pow(T::all(-1.0 / p)) }
}

/// The derivative of the p-norm by an element. `unit` is the element divided by the norm.
#[inline(always)]
fn slope_of<T: Float>(unit: T, p: f64) -> T {
    let sign = T::select(unit > T::ZERO, T::ONE, T::select(unit < T::ZERO, -T::ONE, T::ZERO));
    if p == 1.0 { sign } else { power(unit.abs(), p - 1.0) * sign }
}

/// The power mean `((sum(|x|^p) + eps) / n)^(1 / p)` along axes, which keep length one. It is the divisor of
/// `norm_normalization` up to a constant factor. It is infinite for a zero sum, so that zeros stay zeros.
///
/// The gradients of both operations are formulas of this mean and the normalized elements. The mean is no larger than
/// the elements or `eps`, so the element type can represent it, unlike the norm and its inverse.
#[derive(Clone)]
struct PowerMean {
    /// The power.
    p: f64,
    /// The axes to average over.
    axes: Vec<i64>,
    /// Added to each sum.
    eps: f64,
}
only_in_gradients! {
    PowerMean = "power_mean", " The mean of powers along axes, and its root.";
}

impl PowerMean {
    /// The power mean of `x`, and its ratio to the norm.
    fn of(x: Sym, p: f64, axes: &[usize], eps: f64) -> (Sym, Sym) {
        let op = Self { p, axes: axes.iter().map(|a| *a as i64).collect(), eps };
        let share = op.share(&x.shape());
        (Sym::apply(op, &[x]), Sym::Const(share))
    }

    /// The ratio of the power mean to the norm.
    fn share(&self, x: &Shape) -> f64 {
        share(x, &x.axes("power_mean", Some(&self.axes)).unwrap_or_default(), self.p)
    }
}

/// The ratio of the power mean along axes to the norm.
fn share(x: &Shape, axes: &[usize], p: f64) -> f64 {
    (axes.iter().map(|a| x[*a]).product::<usize>().max(1) as f64).powf(-1.0 / p)
}

/// The power mean of sum `i`. `share` is its ratio to the norm.
fn mean<T: Float>(sums: &PowerSums, i: usize, share: f64) -> T {
    let [unit, root] = sums.root(i);
    if root == 0.0 { T::INFINITY } else { T::of(root * share * unit) }
}

impl Compute for PowerMean {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(reduced("power_mean", x.get(0), Some(&self.axes), true)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (axes, share) =
            (run.x_shape(0).axes("power_mean", Some(&self.axes))?, self.share(run.x_shape(0)));
        let sums = powers(run.x(0), run.x_shape(0), &axes, self.p, self.eps);
        run.y(0).iter_mut().enumerate().for_each(|(i, y)| *y = mean(&sums, i, share));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let normalized = NormNormalization { p: Some(self.p), axes: Some(self.axes.clone()), eps: self.eps };
        let unit = Sym::apply(normalized, &[s.x(0)]);
        let gy = s.gy(0) * Sym::Const(self.share(&s.x(0).shape()));
        vec![Some(gy * slope_of_unit(unit, self.p))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

op! {
    /// Weight normalization: `w_wn = g * w / sqrt(sum(w^2) + eps)`, with a norm for each index of `dim`.
    ///
    /// Args:
    ///     w: Weight of any shape.
    ///     g: Scale, of shape (n,) for the length n of `w` along `dim`.
    ///     dim: Axis of the output maps, which the norm does not sum over.
    ///     eps: Added to the sum of squares.
    ///
    /// Returns:
    ///     Array of the shape of `w`.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `w` has no such axis.
    ///     ShapeError: If `g` has the wrong shape.
    ///
    /// Source:
    ///     Salimans and Kingma, Weight Normalization, 2016, arXiv:1602.07868.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> w = nn.NdArray.from_numpy_array([[3.0, 4.0], [6.0, 8.0]])
    ///     >>> g = nn.NdArray.from_numpy_array([1.0, 10.0])
    ///     >>> F.weight_normalization(w, g).data.round(3)
    ///     array([[0.6, 0.8],
    ///            [6. , 8. ]], dtype=float32)
    /// ```
    WeightNormalization = weight_normalization(w, g; dim: i64 = 0, eps: f64 = 1e-12)
}

impl WeightNormalization {
    /// The axes of the sums, and the shape in which the norms broadcast to `w`.
    fn axes(&self, w: &Shape) -> Result<(Vec<usize>, Shape)> {
        let dim = w.axis("weight_normalization", self.dim)?;
        let axes = (0..w.ndim()).filter(|i| *i != dim).collect();
        Ok((axes, (0..w.ndim()).map(|i| if i == dim { w[i] } else { 1 }).collect()))
    }
}

impl Compute for WeightNormalization {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        not_negative("weight_normalization", "eps", self.eps)?;
        let n = self.axes(x.get(0))?.1.size();
        if x.get(1)[..] != [n] {
            let expected = format!("g of shape ({n},)");
            return Err(Error::shape("weight_normalization", expected, [x.get(0), x.get(1)]));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (axes, _) = self.axes(run.x_shape(0))?;
        let (g, eps) = (run.x(1), T::all(self.eps));
        let scale = |square: T, i: usize| {
            let root = (square + eps).sqrt();
            if root == T::ZERO { T::ZERO } else { g[i] / root }
        };
        let (x, shape) = (run.x(0), run.x_shape(0));
        let sums = powers(x, shape, &axes, 2.0, self.eps);
        scaled((x, run.y(0), shape), (&sums, &kept(shape, &axes)), scale, |i| g[i].real());
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (w, gy, shape) = (run.x(0), run.gy(0), run.x_shape(0));
        let (axes, norms) = self.axes(shape)?;
        let sums = powers(w, shape, &axes, 2.0, self.eps);
        let eps = T::all(self.eps);
        scratch::with(w.len(), |unit| {
            scaled((w, unit, shape), (&sums, &norms), |sum, _| inverse_root(sum + eps, 2.0), |_| 1.0);
            let unit = &*unit;
            let along = along(gy, unit, shape, &axes, sums.len());
            if let Some(gx) = run.gx(0) {
                let share = share(shape, &axes, 2.0);
                let means: List<T> = (0..sums.len()).map(|i| mean(&sums, i, share)).collect();
                let factors: List<T> = run.x(1).iter().map(|g| *g * T::of(share)).collect();
                spread_each(
                    gx,
                    ([gy, unit], shape),
                    ([&along, &means, &factors], &norms),
                    #[inline(always)]
                    |[gy, unit], [along, mean, factor]| (gy - unit * along) / mean * factor,
                );
            }
            if let Some(gx) = run.gx(1) {
                gx.put_all(&along);
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (w, gy) = (s.x(0), s.gy(0));
        let Ok((axes, norms)) = self.axes(&gy.shape()) else { return vec![None, None] };
        let normalized = NormNormalization {
            p: None,
            axes: Some(axes.iter().map(|a| *a as i64).collect()),
            eps: self.eps,
        };
        let unit = Sym::apply(normalized, &[w]);
        let along = (gy * unit).sum(&axes, true);
        let by_w = || {
            let (mean, share) = PowerMean::of(w, 2.0, &axes, self.eps);
            (gy - unit * along) / mean * (s.x(1).reshape(&norms) * share)
        };
        let by_g = || along.reshape(&[norms.size()]);
        vec![s.wants(0).then(by_w), s.wants(1).then(by_g)]
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b11 } else { 0b01 })
    }
}

op! {
    /// Normalization by the p-norm along axes: `y = x / (sum(|x|^p) + eps)^(1 / p)`. Zeros stay zeros, even if `eps` is
    /// zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     p: Order of the norm, a finite number above zero; 2 by default.
    ///     axes: Axis or axes to sum over, all of them by default; negative ones count from the end.
    ///     eps: Added to the sum, zero or more.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `p` or `eps` is out of range.
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[3.0, 4.0], [6.0, 8.0]])
    ///     >>> F.norm_normalization(x, axes=(1,)).data.round(3)
    ///     array([[0.6, 0.8],
    ///            [0.6, 0.8]], dtype=float32)
    /// ```
    NormNormalization = norm_normalization(
        x; p: Option<f64> = None, axes: Option<Vec<i64>> = None, eps: f64 = 1e-12
    )
}

impl NormNormalization {
    /// The order of the norm, 2 by default.
    fn p(&self) -> f64 {
        self.p.unwrap_or(2.0)
    }
}

impl Compute for NormNormalization {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        x.get(0).axes("norm_normalization", self.axes.as_deref())?;
        not_negative("norm_normalization", "eps", self.eps)?;
        if self.p() > 0.0 && self.p().is_finite() {
            return like(x);
        }
        Err(Error::argument("norm_normalization", "p", "a finite number above zero", self.p()))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = run.x_shape(0).axes("norm_normalization", self.axes.as_deref())?;
        let (p, eps) = (self.p(), T::all(self.eps));
        let (x, shape) = (run.x(0), run.x_shape(0));
        let sums = powers(x, shape, &axes, p, self.eps);
        let scale = |sum: T, _| inverse_root(sum + eps, p);
        scaled((x, run.y(0), shape), (&sums, &kept(shape, &axes)), scale, |_| 1.0);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (x, y, gy, shape) = (run.x(0), run.y(0), run.gy(0), run.x_shape(0));
        let (axes, p) = (shape.axes("norm_normalization", self.axes.as_deref())?, self.p());
        let Some(gx) = run.gx(0) else { return Ok(()) };
        let sums = powers(x, shape, &axes, p, self.eps);
        let (along, share) = (along(gy, y, shape, &axes, sums.len()), share(shape, &axes, p));
        let means: List<T> = (0..sums.len()).map(|i| mean(&sums, i, share)).collect();
        let (kept, share) = (kept(shape, &axes), T::of(share));
        // A separate loop for the common order.
        if p == 2.0 {
            spread_each(
                gx,
                ([gy, y], shape),
                ([&along, &means], &kept),
                #[inline(always)]
                |[gy, y], [along, mean]| (gy - y * along) / mean * share,
            );
        } else {
            spread_each(
                gx,
                ([gy, y], shape),
                ([&along, &means], &kept),
                #[inline(always)]
                |[gy, y], [along, mean]| (gy - slope_of(y, p) * along) / mean * share,
            );
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, y, gy, p) = (s.x(0), s.y(0), s.gy(0), self.p());
        let Ok(axes) = x.shape().axes("norm_normalization", self.axes.as_deref()) else { return vec![None] };
        let along = (gy * y).sum(&axes, true);
        let (mean, share) = PowerMean::of(x, p, &axes, self.eps);
        vec![Some((gy - slope_of_unit(y, p) * along) / mean * share)]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::ALL
    }
}

#[cfg(test)]
mod tests {
    use crate::array::Shape;
    use crate::ops::Value;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, op};

    #[test]
    fn weight_normalization_gives_each_column_its_norm() {
        let (w, g) = (Tensor::sample([3, 4], 1), [0.5, -2.0, 0.0, 1.5]);
        let norm = |c: usize| (0..3).map(|r| w.data[r * 4 + c].powi(2)).sum::<f64>().sqrt();
        let y = (0..12).map(|i| w.data[i] * g[i % 4] / norm(i % 4)).collect();
        let op = op("weight_normalization", &[Value::Int(-1), Value::Float(1e-12)]);
        let x = [w.clone(), Tensor::new([4], &g)];
        check_forward(&op, &x, &[Tensor { shape: w.shape.clone(), data: y }]);
        check_gradient(&op, &x, &[true, true]);
        assert!(op.shapes(&[&w.shape, &Shape::from([3])]).is_err());
    }

    #[test]
    fn arrays_have_norm_one() {
        let x = Tensor::sample([3, 4], 1);
        for p in [1.0, 2.0, 2.5] {
            let norm = |v: &[f64]| v.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p);
            let rows = x.data.chunks(4).flat_map(|row| row.iter().map(move |v| v / norm(row))).collect();
            let all = x.data.iter().map(|v| v / norm(&x.data)).collect();
            for (axes, data) in [(Value::Int(-1), rows), (Value::None, all)] {
                let op = op("norm_normalization", &[Value::Float(p), axes, Value::Float(1e-12)]);
                check_forward(&op, std::slice::from_ref(&x), &[Tensor { shape: x.shape.clone(), data }]);
                check_gradient(&op, std::slice::from_ref(&x), &[true]);
            }
        }
    }
}
