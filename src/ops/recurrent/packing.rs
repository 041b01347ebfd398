//! Packed sequences: sequences of different lengths, stored time step by time step without padding.

use crate::array::{DType, Shape};
use crate::kernels::{Float, Movable};
use crate::ops::contract::dialect;
use crate::ops::contract::facts::{ALL_INTEGERS, is_whole, range_of};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<PackPaddedSequence>(), Entry::of::<PadPackedSequence>()];

op! {
    /// Packs sequences of different lengths: their elements at the first time step, then at the second one without the
    /// sequences that have ended, and so on. The number of elements depends on the lengths, which must be known when
    /// the function is built.
    ///
    /// Args:
    ///     padded_sequence: Sequences, shape (time, batch, ...), or (batch, time, ...) with `batch_first`, the longest
    ///         first.
    ///     lengths: Length of each, shape (batch,).
    ///     batch_first: The batch is the first axis.
    ///
    /// Returns:
    ///     Elements, shape (sum of the lengths, ...), and the number of running sequences at each time step, shape
    ///     (time,).
    ///
    /// Raises:
    ///     ShapeError: If the inputs do not fit.
    ///     ValueError: If the lengths rise, or one of them is negative or longer than the axis of time.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 4.0], [2.0, 5.0], [3.0, 0.0]])  # a sequence in each column
    ///     >>> packed, sizes = F.pack_padded_sequence(x, nn.NdArray.from_numpy_array([3, 2]))
    ///     >>> packed.data
    ///     array([1., 4., 2., 5., 3.], dtype=float32)
    ///     >>> sizes.data
    ///     array([2, 2, 1])
    /// ```
    PackPaddedSequence = pack_padded_sequence(padded_sequence, lengths: index; batch_first: bool = false)
}

op! {
    /// Pads packed sequences to the length of the longest: the inverse of `pack_padded_sequence`. The shape depends on
    /// the batch sizes, which must be known when the function is built.
    ///
    /// Args:
    ///     packed_sequence: Elements, shape (sum of the batch sizes, ...).
    ///     batch_sizes: Number of running sequences at each time step, shape (time,).
    ///     batch_first: The batch is the first axis of the output.
    ///     padding_value: Value of the elements after the end of a sequence, 0 by default.
    ///     total_length: Length of the axis of time; as long as `batch_sizes` if left out or negative.
    ///
    /// Returns:
    ///     Sequences, shape (time, batch, ...), or (batch, time, ...) with `batch_first`, and the length of each, shape
    ///     (batch,).
    ///
    /// Raises:
    ///     ArgumentError: If `total_length` is too short.
    ///     ShapeError: If the inputs do not fit.
    ///     ValueError: If the batch sizes rise, or one of them is negative.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> packed = nn.NdArray.from_numpy_array([1.0, 4.0, 2.0, 5.0, 3.0])
    ///     >>> sizes = nn.NdArray.from_numpy_array([2, 2, 1])
    ///     >>> x, lengths = F.pad_packed_sequence(packed, sizes)
    ///     >>> x.data
    ///     array([[1., 4.],
    ///            [2., 5.],
    ///            [3., 0.]], dtype=float32)
    ///     >>> lengths.data
    ///     array([3, 2])
    /// ```
    PadPackedSequence = pad_packed_sequence(packed_sequence, batch_sizes: index; batch_first: bool = false,
        padding_value: Option<f64> = None, total_length: Option<i64> = None)
}

op! {
    /// Packs padded sequences with known batch sizes: the gradient of `pad_packed_sequence`.
    ///
    /// Args:
    ///     x: Padded sequences.
    ///     batch_sizes: Number of running sequences at each time step.
    ///     batch_first: The batch is the first axis.
    ///     n: Number of elements.
    ///
    /// Returns:
    ///     Elements, shape (n, ...).
    TakePacked = take_packed(x, batch_sizes: index; batch_first: bool, n: i64)
}

op! {
    /// Pads packed sequences with zeros: the gradient of `pack_padded_sequence`.
    ///
    /// Args:
    ///     x: Elements, packed.
    ///     batch_sizes: Number of running sequences at each time step.
    ///     batch_first: The batch is the first axis.
    ///     shape: Shape of the output.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    PutPacked = put_packed(x, batch_sizes: index; batch_first: bool, shape: Vec<i64>)
}

/// Returns an error if a number of sequences or of steps is negative or rises.
fn check_falling(op: &str, arg: &str, values: impl Iterator<Item = f64>) -> Result<()> {
    let mut before = f64::INFINITY;
    for v in values {
        if !(0.0..=before).contains(&v) {
            let expected = format!("`{arg}` to be zero or more and not to rise");
            return Err(Error::Value(format!("{op}: expected {expected}, got {v} after {before}")));
        }
        before = v;
    }
    Ok(())
}

/// The known values of lengths or batch sizes, which decide the shape of the output.
fn known<'a>(op: &str, arg: &str, x: &InputShapes<'a>) -> Result<&'a [f64]> {
    let values = x.values.ok_or_else(|| {
        Error::Graph(format!("{op}: expected the values of `{arg}` to be known on building, got none"))
    })?;
    check_falling(op, arg, values.iter().copied())?;
    Ok(values)
}

/// The layout of padded sequences. Packed elements are ordered by time step.
struct PackedPlaces {
    /// Stride between time steps, in elements of sequences.
    time: usize,
    /// Stride between sequences.
    batch: usize,
    /// Numbers in an element.
    inner: usize,
}

impl PackedPlaces {
    /// The layout of an array of shape (time, batch, ...), or (batch, time, ...) if `batch_first`.
    fn new(padded: &Shape, batch_first: bool) -> Self {
        let (time, batch) = if batch_first { (1, padded[1]) } else { (padded[1], 1) };
        Self { time, batch, inner: padded.size_from(2) }
    }

    /// Calls `f` with the offsets of each element in the packed and in the padded array.
    fn each(&self, sizes: &[i64], mut f: impl FnMut(usize, usize)) {
        let mut packed = 0;
        for (t, size) in sizes.iter().enumerate() {
            for b in 0..*size as usize {
                f(packed, (t * self.time + b * self.batch) * self.inner);
                packed += self.inner;
            }
        }
    }

    /// Copies padded sequences into packed ones.
    fn take<T: Movable>(&self, x: &[T], sizes: &[i64], y: &mut [T]) {
        self.each(sizes, |to, from| y[to..to + self.inner].copy_from_slice(&x[from..from + self.inner]));
    }

    /// Copies packed sequences into padded ones.
    fn put<T: Movable>(&self, x: &[T], sizes: &[i64], y: &mut [T]) {
        self.each(sizes, |from, to| y[to..to + self.inner].copy_from_slice(&x[from..from + self.inner]));
    }
}

/// Returns an error if lengths or batch sizes differ from those known when the graph was built.
fn check_sum(op: &str, sizes: &[i64], n: usize, steps: usize, batch: usize) -> Result<()> {
    check_falling(op, "batch_sizes", sizes.iter().map(|size| *size as f64))?;
    let sum: i64 = sizes.iter().sum();
    if sum == n as i64 && sizes.len() <= steps && sizes.first().is_none_or(|most| *most <= batch as i64) {
        return Ok(());
    }
    Err(Error::Value(format!("{op}: expected batch sizes as on building, {n} elements, got {sum}")))
}

/// The number of sequences that are still running at each time step.
fn sizes_of(lengths: &[i64], sizes: &mut [i64]) {
    for (t, size) in sizes.iter_mut().enumerate() {
        *size = lengths.iter().filter(|length| **length > t as i64).count() as i64;
    }
}

impl Compute for PackPaddedSequence {
    const SHAPED_BY: Option<usize> = Some(1);
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (padded, lengths) = (x.get(0), x.get(1));
        let fits = padded.ndim() >= 2 && lengths[..] == [padded[usize::from(!self.batch_first)]];
        if !fits {
            let expected = "padded sequences of two axes at least, and a length for each";
            return Err(Error::shape("pack_padded_sequence", expected, [padded, lengths]));
        }
        let time = padded[usize::from(self.batch_first)];
        let values = known("pack_padded_sequence", "lengths", x)?;
        let longest = values.first().copied().unwrap_or(0.0);
        if longest > time as f64 {
            let got = format!("expected lengths of at most {time}, got {longest}");
            return Err(Error::Value(format!("pack_padded_sequence: {got}")));
        }
        let n = values.iter().sum::<f64>() as usize;
        let mut shapes = one([n].iter().chain(&padded[2..]).copied().collect::<Shape>())?;
        shapes.push(Shape::from([time]));
        Ok(shapes)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, lengths, sizes) = (run.x(0), run.index(1), run.y_index(1));
        let (n, shape) = (run.y_shape(0)[0], run.x_shape(0));
        sizes_of(lengths, sizes);
        let (time, batch) = (shape[usize::from(self.batch_first)], shape[usize::from(!self.batch_first)]);
        check_sum("pack_padded_sequence", sizes, n, time, batch)?;
        PackedPlaces::new(shape, self.batch_first).take(x, sizes, run.y(0));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape().iter().map(|d| *d as i64).collect();
        let put = PutPacked { batch_first: self.batch_first, shape };
        vec![s.wants(0).then(|| Sym::apply(put, &[s.gy(0), s.y(1)])), None]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn reads(&self, _: usize) -> Reads {
        Reads { inputs: 0, outputs: 0b10 }
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o == 1).then_some(DType::I64)
    }
}

impl Compute for PadPackedSequence {
    const SHAPED_BY: Option<usize> = Some(1);
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (packed, steps) = (x.get(0), x.get(1).size());
        let values = known("pad_packed_sequence", "batch_sizes", x)?;
        let n = values.iter().sum::<f64>();
        if packed.ndim() == 0 || x.get(1).ndim() != 1 || packed[0] as f64 != n {
            let expected = format!("{n} packed elements, as many as the batch sizes add up to");
            return Err(Error::shape("pad_packed_sequence", expected, [packed, x.get(1)]));
        }
        let time = match self.total_length {
            Some(total) if total >= 0 && (total as usize) < steps && !dialect::is_nnabla() => {
                let expected = format!("at least {steps}, the longest length");
                return Err(Error::argument("pad_packed_sequence", "total_length", expected, total));
            }
            Some(total) if total >= 0 => steps.max(total as usize),
            _ => steps,
        };
        let batch = values.first().copied().unwrap_or(0.0) as usize;
        let axes = if self.batch_first { [batch, time] } else { [time, batch] };
        let shape: Shape = axes.iter().chain(&packed[1..]).copied().collect();
        shape.checked_size()?;
        let mut shapes = one(shape)?;
        shapes.push(Shape::from([batch]));
        Ok(shapes)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, sizes, shape) = (run.x(0), run.index(1), run.y_shape(0));
        let (time, batch) = (shape[usize::from(self.batch_first)], shape[usize::from(!self.batch_first)]);
        check_sum("pad_packed_sequence", sizes, run.x_shape(0)[0], time, batch)?;
        let y = run.y(0);
        // NNabla's kernel pads with zeros.
        let padding = self.padding_value.filter(|_| !dialect::is_nnabla());
        y.fill(run.constant(padding.unwrap_or(0.0)));
        PackedPlaces::new(shape, self.batch_first).put(x, sizes, y);
        sizes_of(sizes, run.y_index(1));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let take = TakePacked { batch_first: self.batch_first, n: s.x(0).shape()[0] as i64 };
        vec![s.wants(0).then(|| Sym::apply(take, &[s.gy(0), s.x(1)])), None]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn makes_reals(&self) -> Option<[i64; 2]> {
        (!self.padding_value.is_none_or(is_whole)).then_some(ALL_INTEGERS)
    }

    fn constants(&self) -> [i64; 2] {
        range_of(self.padding_value)
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o == 1).then_some(DType::I64)
    }

    fn open(&self, arg: &str, _: &InputShapes<'_>) -> Value {
        if arg == "total_length" { Value::Int(-1) } else { Value::Float(0.0) }
    }
}

impl Compute for TakePacked {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one([self.n as usize].iter().chain(&x.get(0)[2..]).copied().collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, sizes, shape) = (run.x(0), run.index(1), run.x_shape(0));
        let (time, batch) = (shape[usize::from(self.batch_first)], shape[usize::from(!self.batch_first)]);
        check_sum("pad_packed_sequence", sizes, self.n as usize, time, batch)?;
        PackedPlaces::new(shape, self.batch_first).take(x, sizes, run.y(0));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape().iter().map(|d| *d as i64).collect();
        let put = PutPacked { batch_first: self.batch_first, shape };
        vec![s.wants(0).then(|| Sym::apply(put, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }
}

impl Compute for PutPacked {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.iter().map(|d| *d as usize).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, sizes, shape) = (run.x(0), run.index(1), run.y_shape(0));
        let (time, batch) = (shape[usize::from(self.batch_first)], shape[usize::from(!self.batch_first)]);
        check_sum("pack_padded_sequence", sizes, run.x_shape(0)[0], time, batch)?;
        let y = run.y(0);
        y.fill(T::ZERO);
        PackedPlaces::new(shape, self.batch_first).put(x, sizes, y);
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let take = TakePacked { batch_first: self.batch_first, n: s.x(0).shape()[0] as i64 };
        vec![s.wants(0).then(|| Sym::apply(take, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }
}
