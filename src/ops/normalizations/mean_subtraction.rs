//! Subtraction of a running mean.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Shape;
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, threads};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::{
    Backward, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Subtracting>()];

op! {
    /// Subtraction of a running mean over the axes before `base_axis`: `y = x - mean`, after the update `t = t + 1` and
    /// `mean = mean + (mean(x) - mean) / t`.
    ///
    /// The gradient takes the mean of earlier runs as constant.
    ///
    /// Args:
    ///     x: Input with `base_axis` batch axes.
    ///     mean: Running mean, of the shape of `x` from `base_axis` on. Updated by forward runs.
    ///     t: Number of runs in the mean, one element. Updated by forward runs.
    ///     base_axis: First axis of a sample.
    ///     update_running_mean: Update the mean in each run; if off, use it as it is.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If `mean` or `t` has the wrong shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 10.0], [3.0, 30.0]])
    ///     >>> mean, t = nn.NdArray.from_numpy_array([0.0, 0.0]), nn.NdArray.from_numpy_array([0])
    ///     >>> F.mean_subtraction(x, mean, t).data
    ///     array([[ -1., -10.],
    ///            [  1.,  10.]], dtype=float32)
    ///     >>> mean.data
    ///     array([ 2., 20.], dtype=float32)
    /// ```
    MeanSubtraction = mean_subtraction(x, mean, t; base_axis: i64 = 1, update_running_mean: bool = true)
}

/// Columns whose means are computed together.
const WIDTH: usize = 512;

/// The operation with its state: the weight of each sample of the last batch in the mean that was subtracted.
#[derive(Clone)]
pub(crate) struct Subtracting {
    /// The operation with its arguments.
    of: MeanSubtraction,
    /// The weight of each sample, written by a forward run and read by a backward run.
    share: Arc<Mutex<f64>>,
}

impl Declared for Subtracting {
    const SPEC: Spec = MeanSubtraction::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        Ok(Self { of: MeanSubtraction::bind(values)?, share: Arc::default() })
    }
    fn values(&self) -> Vec<Value> {
        self.of.values()
    }
}

/// The weight of each sample in the mean that the last run of a [`Subtracting`] subtracted. Takes the output of that
/// run as input, so that it runs afterwards.
#[derive(Clone)]
struct SampleShare(Subtracting);
only_in_gradients! {
    SampleShare = "sample_share", " The weight of a sample in a running mean.";
}

impl Subtracting {
    /// The first axis of a sample.
    fn base(&self, x: &Shape) -> Result<usize> {
        match self.of.base_axis {
            axis if axis == x.ndim() as i64 => Ok(x.ndim()),
            axis => x.axis("mean_subtraction", axis),
        }
    }
}

/// Sums of a range of columns over samples of `n` elements.
fn sums<T: Float>(x: &[T], n: usize, some: Range<usize>) -> Zeros<f64> {
    let mut sums = Zeros::new(some.len());
    for sample in x.chunks_exact(n) {
        let sample = &sample[some.clone()];
        vectorised(
            #[inline(always)]
            || sums.iter_mut().zip(sample).for_each(|(sum, x)| *sum += x.real()),
        );
    }
    sums
}

impl Compute for Subtracting {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let mean = Shape::from(&x.get(0)[self.base(x.get(0))?..]);
        if *x.get(1) != mean || x.get(2).size() != 1 {
            let expected = format!("a mean of shape {mean} and a `t` of one element");
            return Err(Error::shape("mean_subtraction", expected, [x.get(1), x.get(2)]));
        }
        one(x.get(0).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let base = self.base(run.x_shape(0))?;
        let (x, n, samples) = (run.x(0), run.x_shape(1).size(), run.x_shape(0).size_to(base));
        if self.of.update_running_mean && !run.is_recomputation() && samples > 0 {
            let t = run.x(2)[0].real() + 1.0;
            let share = 1.0 / t / samples as f64;
            let moved = |m: T, sum: f64| T::of(m.real() * (1.0 - 1.0 / t) + sum * share);
            threads::columns_mut([run.overwrite(1)], [1, n], WIDTH, 1, |_, some, [mut mean]| {
                let sums = sums(x, n, some);
                mean.row(0).iter_mut().zip(&*sums).for_each(|(mean, sum)| *mean = moved(*mean, *sum));
            });
            run.overwrite(2)[0] = T::of(t);
            *self.share.lock() = share;
        }
        let (mean, y) = (run.x(1), run.y(0));
        threads::row_ranges_mut(y, n, (GRAIN / n.max(1)).max(1), |rows, y| {
            let x = &x[rows.start * n..rows.end * n];
            for (y, x) in y.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
                y.iter_mut().zip(x.iter().zip(mean)).for_each(|(y, (x, mean))| *y = *x - *mean);
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, base) = (run.gy(0), self.base(run.x_shape(0))?);
        let (n, samples) = (run.x_shape(0).size_from(base), run.x_shape(0).size_to(base));
        let Some(gx) = run.gx(0) else { return Ok(()) };
        if !self.of.update_running_mean {
            gx.put_all(gy);
            return Ok(());
        }
        let (share, accumulate) = (*self.share.lock(), gx.accumulate);
        threads::columns_mut([gx.data], [samples, n], WIDTH, 1, |_, some, [mut gx]| {
            let sums = sums(gy, n, some.clone());
            for sample in 0..samples {
                let gy = &gy[sample * n..][some.clone()];
                for (gx, (gy, sum)) in gx.row(sample).iter_mut().zip(gy.iter().zip(&*sums)) {
                    let g = *gy - T::of(sum * share);
                    *gx = if accumulate { *gx + g } else { g };
                }
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let gy = s.gy(0);
        let Ok(base) = self.base(&gy.shape()) else { return vec![None; 3] };
        let of_x = || match self.of.update_running_mean {
            false => gy,
            true => {
                let share = Sym::apply(SampleShare(self.clone()), &[s.y(0)]);
                let samples: Vec<usize> = (0..base).collect();
                gy - gy.sum(&samples, true) * share
            }
        };
        vec![s.wants(0).then(of_x), None, None]
    }

    // `backward` reads the weight of a sample, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // The output only orders the rule after `forward`, which saves the weight of a sample.
    fn symbol_reads(&self, gx: usize) -> Reads {
        if gx == 0 && self.of.update_running_mean { Reads::OUTPUTS } else { Reads::NOTHING }
    }

    // The running mean, and the number of runs in it.
    /// True for the running mean and the number of runs in it, which `forward` updates.
    fn overwrites(&self, i: usize) -> bool {
        i > 0 && self.of.update_running_mean
    }
}

impl Compute for SampleShare {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(Shape::scalar())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0)[0] = T::of(*self.0.share.lock());
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
