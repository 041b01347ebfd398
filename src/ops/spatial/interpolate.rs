//! `interpolate`: resizing along the last axes.

use crate::array::Shape;
use crate::kernels::map::GRAIN;
use crate::kernels::resample::{Resample, Tap};
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, threads};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::{
    Backward, Compares, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Interpolate>()];

op! {
    /// Resizes the last axes by interpolation.
    ///
    /// Args:
    ///     x: Input of any shape, usually (n, channels, height, width).
    ///     scale: Factor for each of the last axes that is resized. Give either `scale` or `output_size`.
    ///     output_size: Length of each of the last axes that is resized.
    ///     mode: `linear`, between the two elements on either side, or `nearest`.
    ///     align_corners: The first and last elements of input and output coincide.
    ///     half_pixel: The position of an element is its centre, not its start.
    ///     half_pixel_for_nn: Like `half_pixel`, for mode `nearest`, as defined by TensorFlow.
    ///     channel_last: The channels are the last axis, and the axes before it are resized.
    ///
    /// Returns:
    ///     Array of the shape of `x` but for the axes that are resized.
    ///
    /// Raises:
    ///     ArgumentError: If both or neither of `scale` and `output_size` are given, `x` has too few axes, a length is
    ///         not positive, or the mode is unknown.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 3.0]]]])
    ///     >>> F.interpolate(x, scale=(1, 2), mode="nearest").data
    ///     array([[[[1., 1., 3., 3.]]]], dtype=float32)
    ///     >>> F.interpolate(x, output_size=(1, 3), mode="linear", align_corners=True).data
    ///     array([[[[1., 2., 3.]]]], dtype=float32)
    /// ```
    Interpolate = interpolate(x; scale: Option<Vec<f64>> = None, output_size: Option<Vec<i64>> = None,
        mode: String = "linear", align_corners: bool = false, half_pixel: bool = false,
        half_pixel_for_nn: bool = false, channel_last: bool = false)
}

impl Interpolate {
    /// The first axis to resize, and the new lengths.
    fn sizes(&self, x: &Shape) -> Result<(usize, Vec<usize>)> {
        let fail = |what: &str, got: String| Err(Error::argument("interpolate", "output_size", what, got));
        let count = match (&self.scale, &self.output_size) {
            (Some(scale), None) => scale.len(),
            (None, Some(sizes)) => sizes.len(),
            _ => return fail("either scale or output_size", "both or neither".into()),
        };
        let last = x.ndim() - usize::from(self.channel_last && x.ndim() > 0);
        if count > last {
            return fail(&format!("at most {last} axes to resize"), count.to_string());
        }
        let first = last - count;
        let sizes = (0..count).map(|i| match (&self.scale, &self.output_size) {
            (Some(scale), _) => (scale[i] * x[first + i] as f64).floor() as i64,
            (_, Some(sizes)) => sizes[i],
            _ => 0,
        });
        let sizes: Vec<i64> = sizes.collect();
        if sizes.iter().any(|n| *n <= 0) || (first..last).any(|axis| x[axis] == 0) {
            return fail("positive lengths of axes that have elements", format!("{sizes:?} from {x}"));
        }
        Ok((first, sizes.into_iter().map(|n| n as usize).collect()))
    }

    /// For each element of an output axis, its two neighbours in the input and their weights.
    fn taps<T: Float>(&self, from: usize, to: usize) -> List<Tap<T>> {
        let ratio = from as f64 / to as f64;
        let aligned = if to > 1 { (from - 1) as f64 / (to - 1) as f64 } else { 0.0 };
        // A single output element is the first input element, as in NNabla, whose step is zero then.
        let step = if self.align_corners || to == 1 { aligned } else { ratio };
        let tap = |d: usize| {
            let d = d as f64;
            let nearest = self.mode == "nearest";
            let at = match (nearest && self.half_pixel_for_nn, self.half_pixel) {
                (true, _) => ratio * (d + 0.5),
                (_, true) => step * (d + 0.5) - 0.5,
                _ => step * d,
            };
            let at = at.clamp(0.0, (from - 1) as f64);
            // Rounded, so that a position that hits an element exactly has no second neighbour.
            let whole = at.round();
            let at = if !nearest && (at - whole).abs() <= 4.0 * f64::EPSILON * whole.max(1.0) {
                whole
            } else {
                at
            };
            let low = at as usize;
            let share = if nearest { T::ZERO } else { T::of(at - low as f64) };
            let high = if share == T::ZERO { low } else { (low + 1).min(from - 1) };
            (low, high, [if high == low { T::ONE } else { T::of(1.0 - (at - low as f64)) }, share])
        };
        let mut taps = List::with_capacity(to);
        threads::in_turn(to, GRAIN, |places| places.for_each(|d| taps.push(tap(d))));
        taps
    }

    /// One pass for each axis, from first to last.
    fn passes<T: Float>(&self, x: &Shape) -> Result<Vec<Resample<T>>> {
        let (first, sizes) = self.sizes(x)?;
        let pass = |(i, to): (usize, &usize)| {
            let axis = first + i;
            let before: usize = x.iter().take(first).product();
            Resample {
                outer: before * sizes[..i].iter().product::<usize>(),
                from: x[axis],
                taps: self.taps(x[axis], *to),
                inner: x.iter().skip(axis + 1).product(),
            }
        };
        Ok(sizes.iter().enumerate().map(pass).collect())
    }

    /// Resizes `x`, of shape `shape`, to `y`.
    fn resize<T: Float>(&self, x: &[T], shape: &Shape, y: &mut [T]) -> Result<()> {
        in_passes(x, y, self.passes(shape)?.iter(), Resample::resized, Resample::forward);
        Ok(())
    }

    /// The transpose of [`Interpolate::resize`]: the gradient of an input of this shape.
    fn gather<T: Float>(&self, gy: &[T], shape: &Shape, gx: &mut [T]) -> Result<()> {
        in_passes(gy, gx, self.passes(shape)?.iter().rev(), Resample::original, Resample::backward);
        Ok(())
    }
}

/// Applies passes to `x`. The last one writes `y`.
fn in_passes<'a, T: Float>(
    x: &[T],
    y: &mut [T],
    mut passes: impl DoubleEndedIterator<Item = &'a Resample<T>>,
    len: impl Fn(&Resample<T>) -> usize,
    run: impl Fn(&Resample<T>, &[T], &mut [T]),
) {
    let Some(last) = passes.next_back() else { return y.copy_from_slice(x) };
    let mut now: Option<Zeros<T>> = None;
    for pass in passes {
        let mut next = Zeros::new(len(pass));
        run(pass, now.as_deref().unwrap_or(x), &mut next);
        now = Some(next);
    }
    run(last, now.as_deref().unwrap_or(x), y);
}

/// The gradient of an [`Interpolate`] for an input of this shape.
#[derive(Clone)]
struct InterpolateBack {
    /// The operation whose gradient it is.
    of: Interpolate,
    /// The shape of the input of that operation.
    shape: Shape,
}
only_in_gradients! {
    InterpolateBack = "interpolate_back", " The gradient of an interpolation.";
}

/// Writes or adds the array that `f` computes.
fn through<T: Float>(gx: Option<Grad<'_, T>>, f: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
    let mut done = Ok(());
    if let Some(gx) = gx {
        gx.through(|gx| done = f(gx));
    }
    done
}

impl Compute for Interpolate {
    // The kernel multiplies elements by one, so that it must receive their values.
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        self.mode == "nearest"
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !["linear", "nearest"].contains(&self.mode.as_str()) {
            return Err(Error::argument("interpolate", "mode", "linear or nearest", &self.mode));
        }
        let (first, sizes) = self.sizes(x.get(0))?;
        let mut dims: Vec<usize> = x.get(0).iter().copied().collect();
        dims[first..first + sizes.len()].copy_from_slice(&sizes);
        one(dims.into_iter().collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.resize(run.x(0), run.x_shape(0), run.y(0))
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        through(run.gx(0), |gx| self.gather(gy, shape, gx))
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(InterpolateBack { of: self.clone(), shape: s.x(0).shape() }, &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Compute for InterpolateBack {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.of.gather(run.x(0), &self.shape, run.y(0))
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        through(run.gx(0), |gx| self.of.resize(gy, &self.shape, gx))
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(self.of.clone(), &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::testing::{Tensor, check_forward, check_gradient};

    /// An interpolation to these sizes.
    fn interpolate(sizes: &[i64], mode: &str, align_corners: bool, half_pixel: bool, for_nn: bool) -> Op {
        Op::new(Interpolate {
            scale: None,
            output_size: Some(sizes.to_vec()),
            mode: mode.into(),
            align_corners,
            half_pixel,
            half_pixel_for_nn: for_nn,
            channel_last: false,
        })
    }

    #[test]
    fn sampled_positions_follow_each_convention() {
        let x = Tensor::new([1, 3], &[0.0, 1.0, 2.0]);
        let rows: [(&str, bool, bool, bool, [f64; 5]); 6] = [
            ("linear", false, false, false, [0.0, 0.6, 1.2, 1.8, 2.0]),
            ("linear", true, false, false, [0.0, 0.5, 1.0, 1.5, 2.0]),
            ("linear", false, true, false, [0.0, 0.4, 1.0, 1.6, 2.0]),
            ("nearest", false, false, false, [0.0, 0.0, 1.0, 1.0, 2.0]),
            ("nearest", true, false, true, [0.0, 0.0, 1.0, 2.0, 2.0]),
            ("nearest", false, true, false, [0.0, 0.0, 1.0, 1.0, 2.0]),
        ];
        for (mode, align, half, for_nn, expected) in rows {
            let op = interpolate(&[5], mode, align, half, for_nn);
            check_forward(&op, std::slice::from_ref(&x), &[Tensor::new([1, 5], &expected)]);
        }
    }

    #[test]
    fn interpolate_has_true_gradients_along_two_axes() {
        for mode in ["linear", "nearest"] {
            let op = interpolate(&[5, 2], mode, false, true, false);
            check_gradient(&op, &[Tensor::sample([2, 3, 4], 1)], &[true]);
        }
    }
}
