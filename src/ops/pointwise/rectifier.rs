//! Piecewise activation functions, such as `relu`.

use crate::array::{Element, Shape};
use crate::kernels::{Float, Number, Stored, broadcast::BroadcastLayout, map, reduce, scratch};
use crate::ops::contract::elementwise::{scaled, sloped};
use crate::ops::{
    Activation, Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Unary, like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<ReLU>(),
    Entry::unary::<LeakyReLU>(),
    Entry::of::<PReLU>(),
    Entry::unary::<ELU>(),
    Entry::unary::<SELU>(),
    Entry::unary::<ReLU6>(),
    Entry::unary::<HardSigmoid>(),
    Entry::unary::<HardTanh>(),
    Entry::unary::<HardSwish>(),
];

/// `x` if it is not positive, else zero: a safe argument for `exp`.
#[inline(always)]
fn negative<N: Number>(x: N) -> N {
    N::select(x.gt(N::all(0.0)), N::all(0.0), x)
}

op! {
    /// Rectified linear unit, elementwise: `y = max(x, 0)`, NaN where `x` is NaN. The derivative at zero is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 3.0])
    ///     >>> F.relu(x).data
    ///     array([0., 0., 3.], dtype=float32)
    /// ```
    ReLU = relu(x; inplace: bool = false)
}

impl Unary for ReLU {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
    const READS: Reads = Reads::OUTPUTS;
    const ACTIVATION: Option<Activation> = Some(Activation::Relu);

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.lt(N::all(0.0)), N::all(0.0), x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, _: N, y: N) -> N {
        N::select(y.le(N::all(0.0)), N::all(0.0), gy)
    }
}

op! {
    /// Leaky rectified linear unit, elementwise: `y = x` where `x > 0`, else `y = alpha * x`. The derivative at zero is
    /// `alpha`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     alpha: Slope of the negative side.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 3.0])
    ///     >>> F.leaky_relu(x, alpha=0.25).data
    ///     array([-0.5,  0. ,  3. ], dtype=float32)
    /// ```
    LeakyReLU = leaky_relu(x; alpha: f64 = 0.1, inplace: bool = false)
}

impl Unary for LeakyReLU {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.gt(N::all(0.0)), x, N::all(self.alpha) * x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(x.gt(N::all(0.0)), gy, scaled(gy, self.alpha))
    }
}

op! {
    /// Rectified linear unit with a learned slope: `y = max(x0, 0) + x1 * min(x0, 0)`. The derivative at zero is 1.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Slope of the negative side: one for all, of shape (), or one for each channel, of shape (c,).
    ///     base_axis: Axis of the channels; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Raises:
    ///     AxisError: If `x0` has no such axis.
    ///     ShapeError: If there is neither one slope nor one for each channel.
    ///
    /// Source:
    ///     He, Zhang, Ren and Sun, Delving Deep into Rectifiers, 2015, arXiv:1502.01852.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[-2.0, 4.0], [-8.0, 2.0]])
    ///     >>> slopes = nn.NdArray.from_numpy_array([0.5, 0.25])
    ///     >>> F.prelu(x, slopes).data
    ///     array([[-1.,  4.],
    ///            [-4.,  2.]], dtype=float32)
    /// ```
    PReLU = prelu(x0, x1; base_axis: i64 = 1)
}

impl PReLU {
    /// The shape in which the slopes broadcast to `x`.
    fn slopes(&self, x: &Shape, slopes: &Shape) -> Result<Shape> {
        if slopes.size() == 1 && slopes.ndim() <= 1 {
            return Ok(x.iter().map(|_| 1).collect());
        }
        let axis = x.axis("prelu", self.base_axis)?;
        if slopes[..] != x[axis..=axis] {
            let expected = format!("slopes of shape () or ({},)", x[axis]);
            return Err(Error::shape("prelu", expected, [x, slopes]));
        }
        Ok((0..x.ndim()).map(|i| if i == axis { x[i] } else { 1 }).collect())
    }
}

impl Compute for PReLU {
    const IN_PLACE: bool = true;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.slopes(x.get(0), x.get(1))?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let slopes = self.slopes(run.x_shape(0), run.x_shape(1))?;
        let broadcast = BroadcastLayout::new(run.x_shape(0), &slopes);
        let f = |x: T, w: T| if x >= T::ZERO { x } else { w * x };
        run.map_pairs(&broadcast, f);
        Ok(())
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    const WIDENED: u64 = 0b10;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let (x, w) = (run.x_shape(0), run.x_shape(1));
        let layout = BroadcastLayout::new(&self.slopes(x, w)?, x);
        layout.sloped::<E>(run.x_memory(0).cells(), run.wide(1), run.y_memory(0).cells());
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let layout = BroadcastLayout::new(&self.slopes(run.x_shape(0), run.x_shape(1))?, run.x_shape(0));
        let gx = run.gx(0).map(|gx| (run.wide(1), gx.data));
        let gw = run.gx_wide(1);
        let sums = layout.sloped_gradients([run.x(0), run.gy(0)], gx, gw.is_some());
        if let Some(gw) = gw {
            gw.adding().iter_mut().zip(&*sums).for_each(|(g, sum)| *g = *g + E::Wide::of(*sum));
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let slopes = self.slopes(run.x_shape(0), run.x_shape(1))?;
        let broadcast = BroadcastLayout::new(run.x_shape(0), &slopes);
        let (x, gy) = (run.x(0), run.gy(0));
        if let Some(gx) = run.gx(0) {
            let w = run.x(1);
            let f = |x, w, [gy]: [T; 1]| if x >= T::ZERO { gy } else { sloped(gy, w) };
            broadcast.put([x, w], [gy], gx.data, gx.accumulate, f);
        }
        if let Some(gw) = run.gx(1) {
            scratch::with(x.len(), |all: &mut [T]| {
                let slope = |[x, gy]: [T; 2]| if x >= T::ZERO { T::ZERO } else { gy * x };
                map::put_of(all, false, [x, gy], slope);
                reduce::sum_to(all, run.x_shape(0), &slopes, gw.data, gw.accumulate, T::of);
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, w, gy) = (s.x(0), s.x(1), s.gy(0));
        let (above, zero) = (x.ge(Sym::Const(0.0)), Sym::Const(0.0));
        let gx = || {
            let slopes = self.slopes(&x.shape(), &w.shape()).unwrap_or_default();
            let w = w.reshape(&slopes).broadcast(&x.shape());
            sloped(gy, Sym::select(above, Sym::Const(1.0), w))
        };
        let gw = || {
            let slopes = self.slopes(&x.shape(), &w.shape()).unwrap_or_default();
            let [gy, x] = [gy, x].map(|v| Sym::select(above, zero, v));
            (gy * x).sum_to(&slopes).reshape(&w.shape())
        };
        vec![s.wants(0).then(gx), s.wants(1).then(gw)]
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 3 } else { 1 })
    }
}

op! {
    /// Exponential linear unit, elementwise: `y = x` where `x >= 0`, else `y = alpha * (exp(x) - 1)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     alpha: The negated limit for large negative `x`.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Clevert, Unterthiner and Hochreiter, Exponential Linear Units, 2015, arXiv:1511.07289.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 2.0])
    ///     >>> F.elu(x).data.round(3)
    ///     array([-0.632,  0.   ,  2.   ], dtype=float32)
    /// ```
    ELU = elu(x; alpha: f64 = 1.0)
}

impl Unary for ELU {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.ge(N::all(0.0)), x, N::all(self.alpha) * negative(x).exp_m1())
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        // Selected last: the compiler would turn a test of the selected slope into branches.
        let left = N::all(self.alpha) * negative(x).exp();
        N::select(x.ge(N::all(0.0)), gy, sloped(gy, left))
    }
}

op! {
    /// Scaled exponential linear unit, elementwise: `y = scale * x` where `x > 0`, else
    /// `y = scale * alpha * (exp(x) - 1)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     scale: Factor on both sides.
    ///     alpha: Factor on the negative side.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Klambauer, Unterthiner, Mayr and Hochreiter, Self-Normalizing Neural Networks, 2017, arXiv:1706.02515.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.selu(x).data.round(3)
    ///     array([-1.111,  0.   ,  1.051], dtype=float32)
    /// ```
    SELU = selu(x; scale: f64 = 1.050_700_987_355_48, alpha: f64 = 1.673_263_242_354_377)
}

impl Unary for SELU {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let left = N::all(self.alpha) * negative(x).exp_m1();
        N::all(self.scale) * N::select(x.gt(N::all(0.0)), x, left)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        let left = N::all(self.alpha * self.scale) * negative(x).exp();
        N::select(x.gt(N::all(0.0)), scaled(gy, self.scale), sloped(gy, left)) // selected last, as in `elu`
    }
}

op! {
    /// Rectified linear unit with a ceiling, elementwise: `y = min(max(x, 0), 6)`. The derivative at 0 and 6 is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [0, 6].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 3.0, 8.0])
    ///     >>> F.relu6(x).data
    ///     array([0., 3., 6.], dtype=float32)
    /// ```
    ReLU6 = relu6(x)
}

impl Unary for ReLU6 {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let six = N::all(6.0);
        N::select(x.le(N::all(0.0)), N::all(0.0), N::select(x.ge(six), six, x))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(N::and(x.gt(N::all(0.0)), x.lt(N::all(6.0))), gy, N::all(0.0))
    }
}

op! {
    /// Piecewise linear logistic function, elementwise: `y = min(max(0.2 * x + 0.5, 0), 1)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [0, 1].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-3.0, 0.0, 1.25])
    ///     >>> F.hard_sigmoid(x).data
    ///     array([0.  , 0.5 , 0.75], dtype=float32)
    /// ```
    HardSigmoid = hard_sigmoid(x)
}

impl Unary for HardSigmoid {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (zero, one, y) = (N::all(0.0), N::all(1.0), N::all(0.2) * x + N::all(0.5));
        N::select(x.lt(N::all(-2.5)), zero, N::select(x.gt(N::all(2.5)), one, y))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        let rises = N::and(x.ge(N::all(-2.5)), x.le(N::all(2.5)));
        N::select(rises, N::all(0.2) * gy, N::all(0.0))
    }
}

op! {
    /// Piecewise linear hyperbolic tangent, elementwise: `y = min(max(x, -1), 1)`. The derivative at -1 and 1 is 1.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [-1, 1].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.5, 2.0])
    ///     >>> F.hard_tanh(x).data
    ///     array([-1. ,  0.5,  1. ], dtype=float32)
    /// ```
    HardTanh = hard_tanh(x)
}

impl Unary for HardTanh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (low, high) = (N::all(-1.0), N::all(1.0));
        N::select(x.lt(low), low, N::select(x.gt(high), high, x))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(N::and(x.ge(N::all(-1.0)), x.le(N::all(1.0))), gy, N::all(0.0))
    }
}

op! {
    /// Swish with a piecewise linear gate, elementwise: `y = x * min(max(x + 3, 0), 6) / 6`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Howard and others, Searching for MobileNetV3, 2019, arXiv:1905.02244.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-3.0, 1.5, 4.0])
    ///     >>> F.hard_swish(x).data
    ///     array([0.   , 1.125, 4.   ], dtype=float32)
    /// ```
    HardSwish = hard_swish(x)
}

impl Unary for HardSwish {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let gate = (x + N::all(3.0)) * N::all(1.0 / 6.0);
        N::select(x.le(N::all(-3.0)), N::all(0.0), N::select(x.ge(N::all(3.0)), x, x * gate))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        let (zero, low, high) = (N::all(0.0), x.le(N::all(-3.0)), x.ge(N::all(3.0)));
        // Zero outside of the linear part, so that the derivative of the slope never sees an infinite `gy`.
        let bent = N::select(N::or(low, high), zero, gy);
        let slope = x * N::all(1.0 / 3.0) + N::all(0.5);
        N::select(low, zero, N::select(high, gy, bent * slope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Value;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, op};

    type Formula<'a> = &'a dyn Fn(f64) -> f64;

    #[test]
    fn rectifiers_equal_their_formulas() {
        let elu = |a: f64, x: f64| if x > 0.0 { x } else { a * x.exp_m1() };
        let leaky = [Value::Float(0.3), Value::Bool(false)];
        let selu = [Value::Float(1.1), Value::Float(1.7)];
        let cases: [(&str, Formula<'_>, &[Value]); 8] = [
            ("relu", &|x| x.max(0.0), &leaky[1..]),
            ("leaky_relu", &|x| if x > 0.0 { x } else { 0.3 * x }, &leaky),
            ("elu", &|x| elu(1.7, x), &selu[1..]),
            ("selu", &|x| 1.1 * elu(1.7, x), &selu),
            ("relu6", &|x| x.clamp(0.0, 6.0), &[]),
            ("hard_sigmoid", &|x| (0.2 * x + 0.5).clamp(0.0, 1.0), &[]),
            ("hard_tanh", &|x| x.clamp(-1.0, 1.0), &[]),
            ("hard_swish", &|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0, &[]),
        ];
        let mut x = Tensor::sample([3, 5], 1);
        x.data[..4].copy_from_slice(&[7.5, 3.5, -3.5, -12.0]);
        for (name, f, values) in cases {
            let y = Tensor { shape: x.shape.clone(), data: x.data.iter().map(|x| f(*x)).collect() };
            check_forward(&op(name, values), &[x.clone()], &[y]);
            check_gradient(&op(name, values), &[x.clone()], &[true]);
        }
    }

    #[test]
    fn slopes_at_kinks_are_those_of_nnabla() {
        let at = |slope: f64, expected: f64| assert_eq!(slope, expected);
        at(LeakyReLU { alpha: 0.3, inplace: false }.gx(1.0, 0.0, 0.0), 0.3);
        at(ELU { alpha: 1.5 }.gx(1.0, 0.0, 0.0), 1.0);
        at(SELU { scale: 2.0, alpha: 1.5 }.gx(1.0, 0.0, 0.0), 3.0);
        at(ReLU6 {}.gx(1.0, 0.0, 0.0), 0.0);
        at(ReLU6 {}.gx(1.0, 6.0, 6.0), 0.0);
        at(HardSigmoid {}.gx(1.0, -2.5, 0.0), 0.2);
        at(HardSigmoid {}.gx(1.0, 2.5, 1.0), 0.2);
        at(HardTanh {}.gx(1.0, -1.0, -1.0), 1.0);
        at(HardTanh {}.gx(1.0, 1.0, 1.0), 1.0);
    }

    #[test]
    fn prelu_learns_one_slope_or_one_for_each_channel() {
        let x = Tensor::sample([2, 3, 4], 1);
        let f = |w: &dyn Fn(usize) -> f64| {
            let y = x.data.iter().enumerate().map(|(i, x)| if *x < 0.0 { w(i) * x } else { *x });
            Tensor { shape: x.shape.clone(), data: y.collect() }
        };
        let prelu = |base_axis| op("prelu", &[Value::Int(base_axis)]);
        let one = [x.clone(), Tensor::new([], &[0.25])];
        check_forward(&prelu(1), &one, &[f(&|_| 0.25)]);
        check_gradient(&prelu(1), &one, &[true, true]);
        let slopes = [0.1, -0.2, 0.3];
        let each = [x.clone(), Tensor::new([3], &slopes)];
        check_forward(&prelu(-2), &each, &[f(&|i| slopes[i / 4 % 3])]);
        check_gradient(&prelu(-2), &each, &[true, true]);
        let shapes = |base_axis, w: &Shape| prelu(base_axis).shapes(&[&x.shape, w]);
        assert!(shapes(2, &Shape::from([3])).is_err() && shapes(3, &Shape::from([3])).is_err());
    }
}
