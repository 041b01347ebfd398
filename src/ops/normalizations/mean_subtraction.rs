//! Subtraction of a running mean.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::scratch::Zeros;
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::{
    Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Subtracting>()];

op! {
    /// The array without its running mean: `y = x - mean`, after `t = t + 1` and `mean = mean + (mean(x) - mean) / t`, the mean
    /// over the axes before `base_axis`.
    ///
    /// The gradient is that of the last run alone: what went into the mean before is constant.
    ///
    /// Args:
    ///     x: Input with `base_axis` axes of samples.
    ///     mean: Running mean, of the shape of `x` from `base_axis` on; overwritten.
    ///     t: Number of runs that went into it, one element; overwritten.
    ///     base_axis: First axis that has means of its own.
    ///     update_running_mean: Let this run go into the mean, else use it as it is.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If `mean` or `t` has the wrong shape.
    MeanSubtraction = mean_subtraction(x, mean, t; base_axis: i64 = 1, update_running_mean: bool = true)
}

/// The operation as the engine computes it: it knows what share the last run had in the mean.
#[derive(Clone)]
pub(crate) struct Subtracting {
    of: MeanSubtraction,
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

/// The share of each sample in the mean that the last run of a [`Subtracting`] took off, whose output it takes to run after it.
#[derive(Clone)]
struct SampleShare(Subtracting);
only_in_gradients! {
    SampleShare = "sample_share", " The share of a sample in a running mean.";
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

impl Compute for Subtracting {
    const HAS_BACKWARD: bool = false;

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
            let (mut sums, share) = (Zeros::<f64>::new(n), 1.0 / t / samples as f64);
            for sample in x.chunks_exact(n.max(1)) {
                sums.iter_mut().zip(sample).for_each(|(sum, x)| *sum += x.real());
            }
            let mean = run.overwrite(1);
            let moved = |m: T, sum: f64| T::of(m.real() * (1.0 - 1.0 / t) + sum * share);
            mean.iter_mut().zip(&*sums).for_each(|(mean, sum)| *mean = moved(*mean, *sum));
            run.overwrite(2)[0] = T::of(t);
            *self.share.lock() = share;
        }
        let (mean, y) = (run.x(1), run.y(0));
        for (y, x) in y.chunks_exact_mut(n.max(1)).zip(x.chunks_exact(n.max(1))) {
            y.iter_mut().zip(x.iter().zip(mean)).for_each(|(y, (x, mean))| *y = *x - *mean);
        }
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

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 && self.of.update_running_mean { Reads::OUTPUTS } else { Reads::NOTHING }
    }

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
