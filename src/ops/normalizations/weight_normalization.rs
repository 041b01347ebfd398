//! Normalizations by a norm.

use crate::array::Shape;
use crate::kernels::scratch::List;
use crate::kernels::{Float, Number, pairing::Pairing, reduce};
use crate::ops::normalizations::layer_normalization::only;
use crate::ops::pointwise::powers::power;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, not_negative, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<WeightNormalization>(), Entry::of::<NormNormalization>()];

/// `x` with each element times `scale(sum(term(x)), i)`: sums run along `axes`, and `i` numbers them.
fn scaled<T: Float>(
    run: &mut Run<'_, T>,
    axes: &[usize],
    term: impl Fn(T) -> T + Sync + Copy,
    scale: impl Fn(T, usize) -> T,
) {
    let (x, shape) = (run.x(0), run.x_shape(0));
    let kept: Vec<bool> = (0..shape.ndim()).map(|i| !axes.contains(&i)).collect();
    let kept = only(shape, &kept);
    let sums = reduce::sums(x, shape, axes, term);
    let scales: List<T> = sums.iter().enumerate().map(|(i, sum)| scale(T::of(*sum), i)).collect();
    Pairing::new(shape, &kept).map_apart(
        x,
        &scales,
        run.y(0),
        #[inline(always)]
        |x, s| x * s,
    );
}

#[inline(always)]
fn square<T: Float>(x: T) -> T {
    x * x
}

op! {
    /// Weight normalization: `w_wn = g * w / sqrt(sum(w^2) + eps)`, with a norm for each index of `dim`.
    ///
    /// Args:
    ///     w: Weight of any shape.
    ///     g: Scale, of shape (n,) for the length n of `w` along `dim`.
    ///     dim: Axis that is not summed over: that of the output maps.
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
    WeightNormalization = weight_normalization(w, g; dim: i64 = 0, eps: f64 = 1e-12)
}

impl WeightNormalization {
    /// The axes that are summed over, and the shape of the norms beside `w`.
    fn axes(&self, w: &Shape) -> Result<(Vec<usize>, Shape)> {
        let dim = w.axis("weight_normalization", self.dim)?;
        let axes = (0..w.ndim()).filter(|i| *i != dim).collect();
        Ok((axes, (0..w.ndim()).map(|i| if i == dim { w[i] } else { 1 }).collect()))
    }
}

impl Compute for WeightNormalization {
    const HAS_BACKWARD: bool = false;

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
        scaled(run, &axes, square, |square, i| g[i] / (square + eps).sqrt());
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (w, gy) = (s.x(0), s.gy(0));
        let Ok((axes, norms)) = self.axes(&gy.shape()) else { return vec![None, None] };
        let scale = ((w * w).sum(&axes, true) + Sym::Const(self.eps)).pow(Sym::Const(-0.5));
        let unit = w * scale;
        let along = (gy * unit).sum(&axes, true);
        let by_w = || s.x(1).reshape(&norms) * scale * (gy - unit * along);
        let by_g = || along.reshape(&[norms.size()]);
        vec![s.wants(0).then(by_w), s.wants(1).then(by_g)]
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b11 } else { 0b01 })
    }
}

op! {
    /// Normalization by the p-norm along axes: `y = x / (sum(|x|^p) + eps)^(1 / p)`.
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
    NormNormalization = norm_normalization(
        x; p: Option<f64> = None, axes: Option<Vec<i64>> = None, eps: f64 = 1e-12
    )
}

impl NormNormalization {
    fn p(&self) -> f64 {
        self.p.unwrap_or(2.0)
    }
}

impl Compute for NormNormalization {
    const HAS_BACKWARD: bool = false;

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
        let (p, eps, root) = (self.p(), T::all(self.eps), T::all(-1.0 / self.p()));
        let scale = |sum: T, _| (sum + eps).pow(root);
        if p == 2.0 {
            scaled(run, &axes, square, scale);
        } else {
            scaled(
                run,
                &axes,
                #[inline(always)]
                move |x: T| power(x.abs(), p),
                scale,
            );
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, gy, p, zero) = (s.x(0), s.gy(0), self.p(), Sym::Const(0.0));
        let Ok(axes) = x.shape().axes("norm_normalization", self.axes.as_deref()) else { return vec![None] };
        // Even powers are written without |x|, which cannot be differentiated twice at zero.
        let (power, slope) = if p == 2.0 {
            (x * x, x)
        } else {
            let sign = x.gt(zero) - x.lt(zero);
            (x.abs().pow(Sym::Const(p)), x.abs().pow(Sym::Const(p - 1.0)) * sign)
        };
        let sum = power.sum(&axes, true) + Sym::Const(self.eps);
        let scale = sum.pow(Sym::Const(-1.0 / p));
        let along = (gy * x).sum(&axes, true);
        vec![Some(scale * (gy - slope * (along / sum)))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

#[cfg(test)]
mod tests {
    use crate::array::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient};
    use crate::ops::{Op, Value, find};

    fn op(name: &str, values: &[Value]) -> Op {
        find(name).expect("is registered").bind(values, u64::MAX).expect("binds")
    }

    #[test]
    fn weights_have_the_norm_that_is_given() {
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
