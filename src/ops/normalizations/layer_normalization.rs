//! The shared implementation of normalizations by mean and variance.

use smallvec::SmallVec;

use crate::array::{Element, Shape};
use crate::kernels::normalization::{
    Gradients, InPlace, Moments, NormLayout, Stats, Wanted, deviations, normalize, normalize_by,
};
use crate::kernels::scratch::List;
use crate::kernels::{Float, Movable, Number, Stored};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::normalizations::batch_normalization::TensorNormalization;
use crate::ops::reductions::reduction::Mean;
use crate::ops::{
    Activation, Backward, ChunkedForward, Compute, InputShapes, Op, Reads, Run, Shapes, Spec, Sym, Symbols,
    Value, not_negative, one,
};
use crate::{Error, Result};

/// For each axis of an array, true if it belongs to a selection.
pub(crate) type Axes = SmallVec<[bool; 8]>;

/// The geometry of a normalization for an array of a certain shape. Inputs 1 and 2, if present, are beta and gamma.
pub(crate) struct Form {
    /// Shape of the array for the normalization. It may split axes.
    pub(crate) view: Shape,
    /// The axes of the view with separate statistics.
    pub(crate) kept: Axes,
    /// The axes of the view with separate scale and offset.
    pub(crate) scaled: Axes,
    /// Shape of beta and gamma.
    pub(crate) params: Shape,
    /// Shape of means and variances.
    pub(crate) stats: Shape,
    /// Added to the variance.
    pub(crate) eps: f64,
    /// True if means and variances are outputs 1 and 2.
    pub(crate) output_stat: bool,
}

/// The shape with length one along all axes that are not `kept`.
pub(crate) fn only(shape: &[usize], kept: &[bool]) -> Shape {
    shape.iter().zip(kept).map(|(d, kept)| if *kept { *d } else { 1 }).collect()
}

impl Form {
    /// Creates a form with separate statistics along the `kept` axes, and separate scales along the `scaled` axes.
    pub(crate) fn new(x: &Shape, kept: Axes, scaled: Axes, eps: f64, output_stat: bool) -> Self {
        let (params, stats) = (only(x, &scaled), only(x, &kept));
        Self { view: x.clone(), kept, scaled, params, stats, eps, output_stat }
    }

    /// How statistics and parameters broadcast over the view.
    pub(crate) fn layout(&self) -> NormLayout {
        NormLayout::new(&self.view, &self.kept, &self.scaled)
    }

    /// Shapes of the outputs.
    pub(crate) fn shapes(&self, spec: &Spec, x: &InputShapes<'_>) -> Result<Shapes> {
        not_negative(spec.name, "eps", self.eps)?;
        let misfits = |i: &usize| x.find(*i).is_some_and(|p| *p != self.params);
        if let Some(i) = (1..spec.inputs.len().min(3)).find(misfits) {
            let expected = format!("{} of shape {}", spec.inputs[i].name, self.params);
            return Err(Error::shape(spec.name, expected, [x.get(i)]));
        }
        let mut shapes = Shapes::from_elem(x.get(0).clone(), 1);
        if self.output_stat {
            shapes.extend([self.stats.clone(), self.stats.clone()]);
        }
        Ok(shapes)
    }

    /// Normalizes by the statistics of the elements, and returns them.
    pub(crate) fn forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Moments {
        let (beta, gamma) = (run.has(1).then(|| run.wide(1)), run.has(2).then(|| run.wide(2)));
        let moments = normalize(&self.layout(), self.eps, run.x(0), gamma, beta, run.y(0), run.tail());
        if self.output_stat {
            let of = |v: &f64| E::narrowed(E::Wide::of(*v));
            run.y(1).iter_mut().zip(&*moments.mean).for_each(|(y, v)| *y = of(v));
            run.y(2).iter_mut().zip(&*moments.variance).for_each(|(y, v)| *y = of(v));
        }
        run.state::<SavedStatistics<E::Wide>>().stats.set_moments(&moments, self.eps);
        moments
    }

    /// Normalizes by given statistics.
    pub(crate) fn forward_by<E: Stored>(&self, run: &mut Run<'_, E>, mean: &[f64], variance: &[f64]) {
        let (x, y, tail) = (run.x(0), run.y(0), run.tail());
        let (beta, gamma) = (run.has(1).then(|| run.wide(1)), run.has(2).then(|| run.wide(2)));
        let stats = &mut run.state::<SavedStatistics<E::Wide>>().stats;
        stats.set(mean, variance, self.eps);
        normalize_by(&self.layout(), stats, x, gamma, beta, y, tail);
    }

    /// Returns the kernel of [`Form::forward_by`] for elements that another kernel is still computing. None if the
    /// elements of a channel are too scattered in memory.
    pub(crate) fn in_place_by<'a, T: Float>(
        &self,
        run: Run<'a, T>,
        mean: &[f64],
        variance: &[f64],
    ) -> Option<&'a InPlace<T>> {
        let (beta, gamma) = (run.has(1).then(|| run.x(1)), run.has(2).then(|| run.x(2)));
        let SavedStatistics { stats, in_place } = run.into_state::<SavedStatistics<T>>();
        stats.set(mean, variance, self.eps);
        in_place.set(&self.layout(), stats, gamma, beta).then_some(&*in_place)
    }

    /// Computes the gradients of all inputs. `given` means that the statistics are inputs 3 and 4.
    pub(crate) fn backward<E: Stored>(&self, op: &str, run: &mut Backward<'_, E>, given: bool) -> Result<()> {
        let layout = self.layout();
        if run.state::<SavedStatistics<E::Wide>>().stats.len() != layout.n_stats {
            return Err(Error::Graph(format!("{op}: expected a forward run before backward, got none")));
        }
        let stats = std::mem::take(&mut run.state::<SavedStatistics<E::Wide>>().stats);
        // The output is not read in this case and may have been freed. The gradient of the output replaces it as a
        // placeholder.
        let by_stats = given && (run.wants(3) || run.wants(4));
        let reads_gamma = run.wants(0) || by_stats;
        let reads_x = run.wants(2) || run.wants(if given { 4 } else { 0 });
        let gy = run.gy(0);
        let gamma = (run.has(2) && reads_gamma).then(|| run.wide(2));
        let x = if reads_x { run.x(0) } else { gy };
        let wide = |gy: &[E]| -> List<E::Wide> { gy.iter().map(|gy| gy.wide()).collect() };
        let outer = self.output_stat.then(|| (wide(run.gy(1)), wide(run.gy(2))));
        let outer = outer.as_ref().map(|(mean, variance)| (&mean[..], &variance[..]));
        let params = run.wants(1) || run.wants(2);
        let gx = run.gx(0).map(|gx| (gx.data, gx.accumulate));
        let gradients = Gradients::new(&layout, (&stats, given), x, gamma, gy, outer);
        let [[beta, gamma], [mean, variance]] = gradients.find(Wanted { x: gx, params, stats: by_stats });
        for (i, mut values) in [(1, beta), (2, gamma), (3, mean), (4, variance)] {
            if let Some(gx) = run.gx_wide(i) {
                if i > 2 && !given {
                    values.fill(E::Wide::ZERO); // statistics of the elements do not depend on those that were given
                }
                gx.put_all(&values);
            }
        }
        run.state::<SavedStatistics<E::Wide>>().stats = stats;
        Ok(())
    }

    /// The gradients as formulas.
    pub(crate) fn gradient(&self, s: &Symbols, given: bool) -> Vec<Option<Sym>> {
        let shape = s.gy(0).shape();
        let stats = only(&self.view, &self.kept);
        let params = only(&self.view, &self.scaled);
        let axes: Vec<usize> = (0..self.view.ndim()).filter(|a| !self.kept[*a]).collect();
        let count = self.layout().count() as f64;
        let over: Vec<i64> = axes.iter().map(|a| *a as i64).collect();
        let mean = |v: Sym| match axes.is_empty() {
            true => v,
            false => Sym::apply(Mean { axis: Some(over.clone()), keepdims: true }, &[v]),
        };
        let gy = s.gy(0).reshape(&self.view);
        // A formula must not mention an input that the requested gradients do not read.
        let x = || s.x(0).reshape(&self.view);
        // One over the given deviation. NaN if the deviation is infinite.
        let scale_given = || {
            let variance = s.x(4).reshape(&stats);
            let same = variance;
            (variance + (variance - same) + Sym::Const(self.eps)).pow(Sym::Const(-0.5))
        };
        let g = || if s.has(2) { gy * s.x(2).reshape(&params) } else { gy };
        let unit = || match given {
            true => (x() - s.x(3).reshape(&stats)) * scale_given(),
            false => unit(x(), &self.kept, self.eps),
        };
        let by_x = || {
            if given {
                return (g() * scale_given()).reshape(&shape);
            }
            let (g, x, unit) = (g(), x(), unit());
            let deviation = Sym::apply(Deviation { kept: self.kept.clone(), eps: self.eps }, &[x]);
            let mut gx = (g - mean(g) - unit * mean(g * unit)) / deviation;
            if self.output_stat {
                let (by_mean, by_variance) = (s.gy(1).reshape(&stats), s.gy(2).reshape(&stats));
                let (one, two) = (Sym::Const(1.0 / count), Sym::Const(2.0 / count));
                gx = gx + (by_mean * one + by_variance * two * (x - mean(x)));
            }
            gx.reshape(&shape)
        };
        let param = |v: Sym| v.sum_to(&params).reshape(&self.params);
        let by_variance = || {
            let scale = scale_given();
            (g() * unit()).sum_to(&stats) * scale * scale * Sym::Const(-0.5)
        };
        vec![
            s.wants(0).then(by_x),
            s.wants(1).then(|| param(gy)),
            s.wants(2).then(|| param(gy * unit())),
            (given && s.wants(3)).then(|| -(g() * scale_given()).sum_to(&stats)),
            (given && s.wants(4)).then(by_variance),
        ]
    }
}

/// Normalizes `x` to zero mean and unit deviation, with separate statistics along the axes that are `kept`.
fn unit(x: Sym, kept: &[bool], eps: f64) -> Sym {
    let axes = (0..kept.len()).filter(|i| kept[*i]).map(|i| i as i64).collect();
    let op = Op::with_inputs(TensorNormalization { axes, eps, output_stat: false }, 1);
    Sym::apply_op(op, &[x])[0]
}

/// `sqrt(variance + eps)` for each index of the `kept` axes.
///
/// The gradients of normalizations are formulas of this deviation and the normalized elements. The deviation is no
/// larger than the elements or `eps`, so the element type can represent it, unlike the variance.
#[derive(Clone)]
struct Deviation {
    /// True for each axis with separate deviations.
    kept: Axes,
    /// Added to the variance.
    eps: f64,
}
only_in_gradients! {
    Deviation = "deviation", " The deviation along axes.";
}

impl Deviation {
    /// How the deviations broadcast over an input of this shape.
    fn layout(&self, x: &Shape) -> NormLayout {
        NormLayout::new(x, &self.kept, &self.kept)
    }
}

impl Compute for Deviation {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(only(x.get(0), &self.kept))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        deviations(&self.layout(run.x_shape(0)), self.eps, run.x(0), run.y(0));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let x = s.x(0);
        let share = Sym::Const(1.0 / self.layout(&x.shape()).count() as f64);
        vec![Some((s.gy(0) * share) * unit(x, &self.kept, self.eps))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl<T: Float> ChunkedForward for InPlace<T> {
    unsafe fn run(&self, at: *mut u8, start: usize, n: usize, activation: Activation) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.normalize(at.cast(), start, n, activation) };
    }
}

/// Values saved by a run: the statistics for gradients, and the kernel that normalizes elements in place.
#[derive(Default)]
struct SavedStatistics<T> {
    /// Means and variances.
    stats: Stats<T>,
    /// The kernel that normalizes by them.
    in_place: InPlace<T>,
}

/// The values that gradients read if the statistics are computed from the elements.
pub(crate) fn reads(gx: usize) -> Reads {
    match gx {
        0 => Reads::inputs(0b101),
        2 => Reads::inputs(0b001),
        _ => Reads::NOTHING,
    }
}

/// The arguments as in NNabla's `info.args`: whether beta and gamma are missing, but nothing about outputs.
pub(crate) fn info(spec: &Spec, values: Vec<Value>, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
    let ours = |name: &&str| matches!(*name, "output_stat" | "n_outputs");
    let mut args: Vec<_> =
        spec.args.iter().map(|a| a.info).zip(values).filter(|(name, _)| !ours(name)).collect();
    if spec.inputs.len() > 1 {
        args.push(("no_scale", Value::Bool(x.find(2).is_none())));
        args.push(("no_bias", Value::Bool(x.find(1).is_none())));
    }
    args
}

/// Implements [`Compute`] for an operation with a method `form(x, beta or gamma)`.
macro_rules! normalizes {
    ($($op:ty)+) => {$(
        impl $crate::ops::Compute for $op {
            const HOSTS_EPILOGUE: bool = true;

            fn shapes(&self, x: &$crate::ops::InputShapes<'_>) -> $crate::Result<$crate::ops::Shapes> {
                self.form(x.get(0), x.find(2).or(x.find(1)))?.shapes(&<Self as $crate::ops::Declared>::SPEC, x)
            }

            const IS_STORED: bool = true;
            const IS_STORED_HALF: bool = true;
            const WIDENED: u64 = 0b110;

            fn stored_forward<E: $crate::kernels::Stored>(
                &self,
                run: &mut $crate::ops::Run<'_, E>,
            ) -> $crate::Result<()> {
                let param = [2, 1].into_iter().find(|i| run.has(*i)).map(|i| run.x_shape(i));
                self.form(run.x_shape(0), param)?.forward(run);
                Ok(())
            }

            fn is_stored_back(&self, _: &$crate::ops::InputShapes<'_>) -> bool {
                true
            }

            fn stored_backward<E: $crate::kernels::Stored>(
                &self,
                run: &mut $crate::ops::Backward<'_, E>,
            ) -> $crate::Result<()> {
                let param = [2, 1].into_iter().find(|i| run.has(*i)).map(|i| run.x_shape(i));
                let name = <Self as $crate::ops::Declared>::SPEC.name;
                self.form(run.x_shape(0), param)?.backward(name, run, false)
            }

            fn gradient(&self, s: &$crate::ops::Symbols) -> Vec<Option<$crate::ops::Sym>> {
                let param = [2, 1].into_iter().find(|i| s.has(*i)).map(|i| s.x(i).shape());
                self.form(&s.x(0).shape(), param.as_ref()).map_or_else(|_| vec![None], |form| form.gradient(s, false))
            }

            fn reads(&self, gx: usize) -> $crate::ops::Reads {
                $crate::ops::normalizations::layer_normalization::reads(gx)
            }

            fn info(&self, x: &$crate::ops::InputShapes<'_>) -> Vec<(&'static str, $crate::ops::Value)> {
                use $crate::ops::Declared;
                $crate::ops::normalizations::layer_normalization::info(&Self::SPEC, self.values(), x)
            }
        }
    )+};
}
pub(crate) use normalizes;
