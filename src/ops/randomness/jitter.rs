//! Random crops, flips and shifts, different for each sample.

use std::ops::Range;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::map::GRAIN;
use crate::kernels::random::PhiloxKey;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::threads::{self, SharedCells};
use crate::ops::contract::facts::{ALL_INTEGERS, is_whole, range_of};
use crate::ops::randomness::generator_state::Drawing;
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, Input, InputShapes, Kind, Reads, Run, Shapes, Spec, Sym,
    Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<Moving<RandomCrop>>(),
    Entry::of::<Moving<RandomFlip>>(),
    Entry::of::<Moving<RandomShift>>(),
];

op! {
    /// Random crop of each sample.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     shape: Lengths of the last axes of the output, no longer than in `x`, which is the default. Along a batch
    ///         axis, neighbours stay together: the position is drawn once for each index of the axes before it.
    ///     base_axis: First axis of a sample. Each sample has its own position.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of the shape of `x` but for the last axes.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If `shape` has a length out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.arange(6.0).reshape(1, 6))
    ///     >>> y = F.random_crop(x, shape=(3,)).data
    ///     >>> np.diff(y)  # neighbours stay neighbours
    ///     array([[1., 1.]], dtype=float32)
    /// ```
    RandomCrop = random_crop(x; shape: Option<Vec<i64>> = None, base_axis: i64 = 1, seed: i64 = -1)
}

op! {
    /// Random flip of each sample along axes, with probability one half for each axis.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axes: The axes, the last one by default; negative ones count from the end. Along a batch axis, samples are
    ///         reversed together: the flip is drawn once for each index of the axes before it.
    ///     base_axis: First axis of a sample. Each sample has its own flips.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0]])
    ///     >>> F.random_flip(x).data[0].tolist() in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    ///     True
    /// ```
    RandomFlip = random_flip(x; axes: Option<Vec<i64>> = None, base_axis: i64 = 1, seed: i64 = -1)
}

op! {
    /// Random shift of each sample along axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     shifts: For each of the last axes, the largest shift in either direction, none by default. Along a batch
    ///         axis, whole samples are shifted.
    ///     border_mode: The values that enter at the border: `nearest`, the element at the border; `reflect`, the
    ///         mirror image; `constant`, a number.
    ///     constant_value: The number for `constant`.
    ///     base_axis: First axis of a sample. Each sample has its own shifts.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If a shift is negative or of an axis that `x` does not have, or the mode is unknown.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0]])
    ///     >>> y = F.random_shift(x, shifts=(1,)).data[0].tolist()
    ///     >>> y in ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 3.0])
    ///     True
    /// ```
    RandomShift = random_shift(x; shifts: Option<Vec<i64>> = None, border_mode: String = "nearest",
        constant_value: f64 = 0.0, base_axis: i64 = 1, seed: i64 = -1)
}

/// Marks an output element without a source in the input.
const OUTSIDE: usize = usize::MAX;

/// An operation that moves the elements of each sample by random amounts along each axis.
pub(crate) trait Moves: Declared {
    /// The first axis of a sample.
    fn base_axis(&self) -> i64;
    /// The argument `seed`.
    fn seed(&self) -> i64;
    /// Checks the arguments and returns the shape of the output. `base` is the first axis of a sample.
    ///
    /// # Errors
    /// If an argument does not fit.
    fn shape(&self, x: &Shape, base: usize) -> Result<Shape>;
    /// The first axis along which elements move: `base`, or a batch axis before it.
    fn first(&self, _: &Shape, base: usize) -> usize {
        base
    }
    /// True if samples that differ only along a moving batch axis share one random number.
    const TOGETHER: bool = true;
    /// The position in the input along `axis` of element `i` of the output. `drawn` is a random number between 0 and 1
    /// for the sample and axis; `x` and `y` are the shapes.
    fn from(&self, axis: usize, x: &Shape, y: &Shape, i: usize, drawn: f64) -> usize;
    /// The value of output elements without a source.
    fn outside(&self) -> f64 {
        0.0
    }
    /// As [`Compute::open`].
    fn open(&self, arg: &str, x: &Shape) -> Value;
}

/// A [`Moves`] operation with its state, for the engine.
type Moving<C> = Drawing<C>;

/// The source of each output element.
struct Moved {
    /// For each sample and axis, the source position of each index of the output.
    from: List<usize>,
    /// For each output sample, its input sample.
    sources: List<usize>,
    /// Lengths of a sample's axes in the input.
    x: Shape,
    /// Lengths of a sample's axes in the output.
    y: Shape,
    /// True if several output samples may have the same input sample.
    across: bool,
}

impl Moved {
    /// Calls `work` in parallel for each row of output samples: offset in the output, offset in the input (if it has a
    /// source), and source positions along the last axis.
    fn rows(&self, shared: bool, work: impl Fn(usize, usize, &[usize]) + Sync) {
        let samples = self.sources.len();
        let (Some((width, outer)), tables) = (self.y.split_last(), self.y.iter().sum::<usize>()) else {
            return (0..samples).for_each(|i| work(i, self.sources[i], &[0]));
        };
        let rows: usize = outer.iter().product();
        let size = self.x.size();
        let row = |sample: usize, row: usize| {
            let from = &self.from[sample * tables..][..tables];
            let (mut at, mut step, mut left, mut end) = (0, self.x[outer.len()], row, tables - width);
            for axis in (0..outer.len()).rev() {
                end -= self.y[axis];
                let place = from[end + left % self.y[axis]];
                if place == OUTSIDE {
                    at = OUTSIDE;
                } else if at != OUTSIDE {
                    at += place * step;
                }
                step *= self.x[axis];
                left /= self.y[axis];
            }
            let source = self.sources[sample];
            let start = if at == OUTSIDE || source == OUTSIDE { OUTSIDE } else { source * size + at };
            work((sample * rows + row) * width, start, &from[tables - width..]);
        };
        let all = |samples: Range<usize>| samples.for_each(|s| (0..rows).for_each(|r| row(s, r)));
        if shared && self.across {
            return all(0..samples);
        }
        if shared {
            // Rows of a sample may share elements, so they run on one thread.
            return threads::ranges(samples, (GRAIN / (rows * width).max(1)).max(1), all);
        }
        threads::ranges(samples * rows, (GRAIN / (*width).max(1)).max(1), |range| {
            range.for_each(|i| row(i / rows, i % rows));
        });
    }

    /// Copies the elements to the output.
    fn take<T: Float>(&self, x: &[T], outside: T, y: &mut [T]) {
        let y = SharedCells::of(y);
        self.rows(false, |at, start, from| {
            for (i, from) in from.iter().enumerate() {
                let is_outside = start == OUTSIDE || *from == OUTSIDE;
                y.change(at + i, |_| if is_outside { outside } else { x[start + from] });
            }
        });
    }

    /// Adds the gradients to the sources of the elements.
    fn give_back<T: Float>(&self, gy: &[T], gx: &mut [T]) {
        let gx = SharedCells::of(gx);
        self.rows(true, |at, start, from| {
            for (g, from) in gy[at..].iter().zip(from) {
                if start != OUTSIDE && *from != OUTSIDE {
                    gx.add(start + from, *g); // no other thread has its sample
                }
            }
        });
    }
}

impl<C: Moves> Moving<C> {
    /// Number of random numbers for an input of this shape.
    fn numbers(&self, x: &Shape) -> Result<usize> {
        let base = x.axis(C::SPEC.name, self.of.base_axis())?;
        Ok(self.of.shape(x, base)?.size_to(base) * (x.ndim() - self.of.first(x, base)))
    }

    /// The moves for an input of this shape and these random numbers.
    fn moved(&self, key: PhiloxKey, x: &Shape) -> Result<Moved> {
        let base = x.axis(C::SPEC.name, self.of.base_axis())?;
        let y = self.of.shape(x, base)?;
        let first = self.of.first(x, base);
        let (samples, axes) = (y.size_to(base), x.ndim() - first);
        let mut drawn = Zeros::<f64>::new(samples * axes);
        key.uniform(0.0, 1.0, &mut drawn);
        let mut sources = List::with_capacity(samples);
        let mut from = List::with_capacity(samples * y[base..].iter().sum::<usize>());
        for sample in 0..samples {
            let (mut source, mut left, mut step, mut group) = (Some(0), sample, 1, 1);
            for axis in (first..base).rev() {
                group *= if C::TOGETHER { y[axis] } else { 1 };
                let drawn_for = sample - sample % group;
                let place = self.of.from(axis, x, &y, left % y[axis], drawn[drawn_for * axes + axis - first]);
                source = source.filter(|_| place != OUTSIDE).map(|at| at + place * step);
                (left, step) = (left / y[axis], step * x[axis]);
            }
            sources.push(source.map_or(OUTSIDE, |at| at + left * step));
            let own = &drawn[sample * axes..][base - first..axes];
            for (axis, u) in (base..x.ndim()).zip(own) {
                (0..y[axis]).for_each(|i| from.push(self.of.from(axis, x, &y, i, *u)));
            }
        }
        let of = |shape: &Shape| shape[base..].iter().copied().collect();
        Ok(Moved { from, sources, x: of(x), y: of(&y), across: first < base })
    }
}

impl<C: Moves> Compute for Moving<C> {
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        self.of.open(arg, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let x = x.get(0);
        one(self.of.shape(x, x.axis(C::SPEC.name, self.of.base_axis())?)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let shape = run.x_shape(0);
        let key = self.draw(run, self.of.seed(), self.numbers(shape)?);
        let outside = run.constant(self.of.outside());
        self.moved(key, shape)?.take(run.x(0), outside, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (key, gy, shape) = (self.drawn(run)?, run.gy(0), run.x_shape(0));
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            self.moved(key, shape)?.give_back(gy, gx);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        vec![Some(Sym::apply(MovedBack { of: self.clone(), shape }, &[s.gy(0), s.y(0)]))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn makes_reals(&self) -> Option<[i64; 2]> {
        (!is_whole(self.of.outside())).then_some(ALL_INTEGERS)
    }

    fn constants(&self) -> [i64; 2] {
        range_of([self.of.outside()])
    }

    // `backward` draws the random numbers of `forward` again.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // The output only orders the rule after `forward`, which saves the random numbers.
    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }

    const IS_RANDOM: bool = true;
}

/// Adds elements to the positions that the last run of a [`Moving`] read them from. `y` is the output of that run.
#[derive(Clone)]
struct MovedBack<C> {
    /// The operation that moved the elements.
    of: Moving<C>,
    /// The shape of its input.
    shape: Shape,
}

/// Moves elements as in the last run of a [`Moving`], with zeros outside. `y` is the output of that run.
#[derive(Clone)]
struct MovedAgain<C> {
    /// The operation that moved the elements.
    of: Moving<C>,
    /// The shape of its input.
    shape: Shape,
}

/// Implements operations that repeat the moves of the last run, for gradients.
macro_rules! again {
    ($($ty:ident = $name:literal, $doc:literal;)+) => {$(
        impl<C: Declared> Declared for $ty<C> {
            const SPEC: Spec = Spec {
                name: $name,
                type_name: stringify!($ty),
                raw_doc: $doc,
                inputs: &[Input { name: "x", kind: Kind::float }, Input { name: "y", kind: Kind::float }],
                args: &[],
            };
            /// Refuses: only gradients make this operation.
            fn bind(_: &[Value]) -> Result<Self> {
                Err(Error::NotImplemented(concat!($name, ": is made by gradients only").into()))
            }
            fn values(&self) -> Vec<Value> {
                Vec::new()
            }
        }
    )+};
}
again! {
    MovedBack = "moved_back", " Elements added to the positions that they were read from.";
    MovedAgain = "moved_again", " Elements moved as in the forward run.";
}

impl<C: Moves> Compute for MovedBack<C> {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let y = run.y(0);
        y.fill(T::ZERO);
        self.of.moved(self.of.last()?, &self.shape)?.give_back(run.x(0), y);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let again = MovedAgain { of: self.of.clone(), shape: self.shape.clone() };
        vec![s.wants(0).then(|| Sym::apply(again, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b10) } else { Reads::NOTHING }
    }
}

impl<C: Moves> Compute for MovedAgain<C> {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(x.get(1).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.of.moved(self.of.last()?, &self.shape)?.take(run.x(0), T::ZERO, run.y(0));
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let back = MovedBack { of: self.of.clone(), shape: self.shape.clone() };
        vec![s.wants(0).then(|| Sym::apply(back, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b10) } else { Reads::NOTHING }
    }
}

/// Maps a random number between 0 and 1 to a whole number in `0..count`.
fn whole(drawn: f64, count: usize) -> usize {
    ((drawn * count as f64) as usize).min(count.saturating_sub(1))
}

/// A shape as an argument value.
fn ints(shape: &Shape) -> Value {
    Value::Ints(shape.iter().map(|d| *d as i64).collect())
}

impl Moves for RandomCrop {
    fn base_axis(&self) -> i64 {
        self.base_axis
    }
    fn seed(&self) -> i64 {
        self.seed
    }
    fn shape(&self, x: &Shape, _: usize) -> Result<Shape> {
        let Some(given) = &self.shape else { return Ok(x.clone()) };
        let mut y = x.clone();
        let fits = given.len() <= x.ndim();
        let first = x.ndim() - given.len().min(x.ndim());
        let each = (first..).zip(given);
        if !fits || each.clone().any(|(axis, n)| !(0..=x[axis] as i64).contains(n)) {
            let expected = format!("lengths of the last axes of {x}, no longer than they are");
            return Err(Error::argument("random_crop", "shape", expected, format!("{given:?}")));
        }
        each.for_each(|(axis, n)| y[axis] = *n as usize);
        Ok(y)
    }
    fn first(&self, x: &Shape, base: usize) -> usize {
        let given = self.shape.as_deref().unwrap_or_default();
        let first = x.ndim() - given.len().min(x.ndim());
        let cut = (first..).zip(given).find(|(axis, n)| **n != x[*axis] as i64);
        cut.map_or(base, |(axis, _)| axis.min(base))
    }
    fn from(&self, axis: usize, x: &Shape, y: &Shape, i: usize, drawn: f64) -> usize {
        whole(drawn, x[axis] - y[axis] + 1) + i
    }
    fn open(&self, arg: &str, x: &Shape) -> Value {
        if arg == "shape" { ints(x) } else { Value::None }
    }
}

impl Moves for RandomFlip {
    fn base_axis(&self) -> i64 {
        self.base_axis
    }
    fn seed(&self) -> i64 {
        self.seed
    }
    fn shape(&self, x: &Shape, _: usize) -> Result<Shape> {
        self.axes.iter().flatten().try_for_each(|axis| x.axis("random_flip", *axis).map(drop))?;
        Ok(x.clone())
    }
    fn first(&self, x: &Shape, base: usize) -> usize {
        let axes = self.axes.iter().flatten().filter_map(|axis| x.axis("random_flip", *axis).ok());
        axes.min().map_or(base, |first| first.min(base))
    }
    fn from(&self, axis: usize, x: &Shape, _: &Shape, i: usize, drawn: f64) -> usize {
        let n = x.ndim() as i64;
        let chosen = match &self.axes {
            Some(axes) => axes.iter().any(|a| a.rem_euclid(n) == axis as i64),
            None => axis + 1 == x.ndim(),
        };
        if chosen && drawn < 0.5 { x[axis] - 1 - i } else { i }
    }
    fn open(&self, arg: &str, x: &Shape) -> Value {
        if arg == "axes" { Value::Ints(vec![x.ndim() as i64 - 1]) } else { Value::None }
    }
}

impl Moves for RandomShift {
    fn base_axis(&self) -> i64 {
        self.base_axis
    }
    fn seed(&self) -> i64 {
        self.seed
    }
    fn shape(&self, x: &Shape, _: usize) -> Result<Shape> {
        let op = "random_shift";
        if !["nearest", "reflect", "constant"].contains(&self.border_mode.as_str()) {
            return Err(Error::argument(
                op,
                "border_mode",
                "nearest, reflect or constant",
                &self.border_mode,
            ));
        }
        let shifts = self.shifts.as_deref().unwrap_or_default();
        if shifts.len() > x.ndim() || shifts.iter().any(|s| !(0..1 << 31).contains(s)) {
            let expected = format!("zero or more for each of the last axes, {} at most", x.ndim());
            return Err(Error::argument(op, "shifts", expected, format!("{shifts:?}")));
        }
        Ok(x.clone())
    }
    fn first(&self, x: &Shape, base: usize) -> usize {
        let shifts = self.shifts.as_deref().unwrap_or_default();
        let moved = shifts.iter().position(|s| *s != 0).map_or(base, |at| x.ndim() - shifts.len() + at);
        moved.min(base)
    }
    const TOGETHER: bool = false;
    fn from(&self, axis: usize, x: &Shape, _: &Shape, i: usize, drawn: f64) -> usize {
        let shifts = self.shifts.as_deref().unwrap_or_default();
        let most = (axis + shifts.len()).checked_sub(x.ndim()).map_or(0, |at| shifts[at]);
        let shift = whole(drawn, 2 * most as usize + 1) as i64 - most;
        let (at, n) = (i as i64 - shift, x[axis] as i64);
        match self.border_mode.as_str() {
            "reflect" => {
                let at = at.rem_euclid(2 * n);
                at.min(2 * n - 1 - at) as usize
            }
            "constant" if !(0..n).contains(&at) => OUTSIDE,
            _ => at.clamp(0, n - 1) as usize,
        }
    }
    fn outside(&self) -> f64 {
        self.constant_value
    }
    fn open(&self, arg: &str, x: &Shape) -> Value {
        if arg == "shifts" { Value::Ints(vec![0; x.ndim()]) } else { Value::None }
    }
}
