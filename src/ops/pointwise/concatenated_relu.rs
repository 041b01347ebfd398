//! Activations that concatenate a function of `x` and the function of `-x`.

use std::ops::Range;

use crate::Result;
use crate::array::Shape;
use crate::kernels::map::GRAIN;
use crate::kernels::simd::vectorised;
use crate::kernels::threads;
use crate::kernels::{Float, Number};
use crate::ops::arrangement::slicing::Slice;
use crate::ops::pointwise::rectifier::ELU;
use crate::ops::{
    Backward, Compares, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Unary, one,
    op,
};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<CReLU>(), Entry::of::<CELU>()];

/// Two functions of each element. Their results are concatenated along an axis.
trait TwoSided: Declared {
    /// True if each result for a whole number is zero, that number or its negative. Integers keep their values then.
    const SELECTS: bool = false;

    /// Axis of the concatenation, as given.
    fn axis(&self) -> i64;
    /// The two results.
    fn f<N: Number>(&self, x: N) -> (N, N);
    /// The gradient of `x` for the gradients of both results.
    fn gx<N: Number>(&self, first: N, second: N, x: N) -> N;

    /// Elements of one sample, from the axis of concatenation on.
    fn block(&self, x: &Shape) -> Result<usize> {
        Ok(x.size_from(x.axis(Self::SPEC.name, self.axis())?))
    }
}

/// Splits a range at the boundaries of samples of `block` elements. For each piece, also returns the offset of its
/// first result. The second result is `block` elements further on.
fn split_at_samples(range: Range<usize>, block: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min(start + block - start % block);
        (start < at).then_some((start..at, start / block * 2 * block + start % block))
    })
}

macro_rules! two_sided {
    ($($op:ty)+) => {$(
        impl Compute for $op {
            const COMPARES: Compares = if Self::SELECTS { Compares::Moved } else { Compares::Nothing };

            fn moves(&self, _: usize) -> bool {
                Self::SELECTS
            }

            // Not every signed type holds the negative of its least number.
            fn constants(&self) -> [i64; 2] {
                [0, if Self::SELECTS { 1 << 53 } else { 0 }]
            }

            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                let mut shape = x.get(0).clone();
                let axis = shape.axis(Self::SPEC.name, self.axis)?;
                shape[axis] *= 2;
                one(shape)
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let block = self.block(run.x_shape(0))?.max(1);
                let (x, y, grain) = (run.x(0), run.y(0), (GRAIN / block).max(1));
                threads::columns_mut([y], [2, block], GRAIN, grain, |sample, some, [mut y]| {
                    let x = &x[sample * block..][some];
                    let [first, second] = y.rows([0, 1]);
                    vectorised(
                        #[inline(always)]
                        move || {
                            for ((x, a), b) in x.iter().zip(first).zip(second) {
                                (*a, *b) = self.f(*x);
                            }
                        },
                    );
                });
                Ok(())
            }

            fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
                let block = self.block(run.x_shape(0))?.max(1);
                let (x, gy) = (run.x(0), run.gy(0));
                let Some(gx) = run.gx(0) else { return Ok(()) };
                let adds = gx.accumulate;
                threads::row_ranges_mut(gx.data, 1, GRAIN, |range, gx| {
                    let start = range.start;
                    for (from, to) in split_at_samples(range, block) {
                        let gx = &mut gx[from.start - start..from.end - start];
                        let (x, first, second) = (&x[from], &gy[to..], &gy[to + block..]);
                        vectorised(
                            #[inline(always)]
                            move || {
                                let all = gx.iter_mut().zip(x).zip(first).zip(second);
                                for (((gx, x), first), second) in all {
                                    let g = TwoSided::gx(self, *first, *second, *x);
                                    *gx = if adds { *gx + g } else { g };
                                }
                            },
                        );
                    }
                });
                Ok(())
            }

            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                let (x, shape) = (s.x(0), s.x(0).shape());
                let Ok(block) = self.block(&shape) else { return vec![None] };
                let gy = s.gy(0).reshape(&[shape.size() / block.max(1), 2, block]);
                let half = |k: i64| {
                    let bounds = |k| Some(vec![None, Some(k), None]);
                    let slice = Slice { start: bounds(k), stop: bounds(k + 1), step: None };
                    Sym::rearrange(slice, gy).reshape(&shape)
                };
                vec![Some(TwoSided::gx(self, half(0), half(1), x))]
            }

            fn reads(&self, _: usize) -> Reads {
                Reads::INPUTS
            }
        }
    )+};
}
two_sided!(CReLU CELU);

op! {
    /// Concatenated rectified linear unit: `y = (max(x, 0), max(-x, 0))`, concatenated along `axis`. At zero the
    /// derivative is the one of the second part.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis of the concatenation.
    ///
    /// Returns:
    ///     Array of the shape of `x`, twice as long along `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Source:
    ///     Shang, Sohn, Almeida and Lee, Concatenated Rectified Linear Units, 2016, arXiv:1603.05201.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[-2.0, 3.0]])
    ///     >>> F.crelu(x).data
    ///     array([[0., 3., 2., 0.]], dtype=float32)
    /// ```
    CReLU = crelu(x; axis: i64 = 1)
}

impl TwoSided for CReLU {
    const SELECTS: bool = true;

    fn axis(&self) -> i64 {
        self.axis
    }

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> (N, N) {
        let zero = N::all(0.0);
        (N::select(x.le(zero), zero, x), N::select(x.gt(zero), zero, -x))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, first: N, second: N, x: N) -> N {
        let zero = N::all(0.0);
        N::select(x.le(zero), zero, first) - N::select(x.gt(zero), zero, second)
    }
}

op! {
    /// Concatenated exponential linear unit: `y = (elu(x), elu(-x))`, concatenated along `axis`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     alpha: As in `elu`.
    ///     axis: Axis of the concatenation.
    ///
    /// Returns:
    ///     Array of the shape of `x`, twice as long along `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[-1.0, 2.0]])
    ///     >>> F.celu(x).data.round(3)
    ///     array([[-0.632,  2.   ,  1.   , -0.865]], dtype=float32)
    /// ```
    CELU = celu(x; alpha: f64 = 1.0, axis: i64 = 1)
}

impl CELU {
    /// ELU with the same `alpha`, which computes both halves.
    fn elu(&self) -> ELU {
        ELU { alpha: self.alpha }
    }
}

impl TwoSided for CELU {
    fn axis(&self) -> i64 {
        self.axis
    }

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> (N, N) {
        (self.elu().f(x), self.elu().f(-x))
    }

    #[inline(always)]
    fn gx<N: Number>(&self, first: N, second: N, x: N) -> N {
        // The gradient of `elu` does not read its output.
        self.elu().gx(first, x, x) - self.elu().gx(second, -x, x)
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::Value;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, op};

    #[test]
    fn concatenated_relu_appends_the_rectified_negative() {
        let elu = |x: f64| if x < 0.0 { 1.5 * x.exp_m1() } else { x };
        let x = Tensor::new([2, 1, 2], &[-1.0, 0.5, 2.0, -0.3]);
        let both = |f: &dyn Fn(f64) -> f64| -> Vec<f64> {
            x.data
                .chunks(2)
                .flat_map(|row| row.iter().map(|x| f(*x)).chain(row.iter().map(|x| f(-x))))
                .collect()
        };
        let crelu = op("crelu", &[Value::Int(1)]);
        check_forward(&crelu, std::slice::from_ref(&x), &[Tensor::new([2, 2, 2], &both(&|x| x.max(0.0)))]);
        let celu = op("celu", &[Value::Float(1.5), Value::Int(-2)]);
        check_forward(&celu, std::slice::from_ref(&x), &[Tensor::new([2, 2, 2], &both(&elu))]);
        for shape in [[2, 3, 4], [2, 0, 3], [1, 1, 1]] {
            check_gradient(&crelu, &[Tensor::sample(shape, 1)], &[true]);
            check_gradient(&celu, &[Tensor::sample(shape, 1)], &[true]);
        }
    }
}
