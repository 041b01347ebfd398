//! Incremental network quantization (INQ): layers whose weights become powers of two, half of the remaining ones at a
//! time.

use smallvec::SmallVec;

use crate::kernels::Float;
use crate::kernels::random::PhiloxKey;
use crate::kernels::scratch::{List, SavedMemory, Zeros};
use crate::ops::quantization::binary_layers::{Weighted, memory, weighted};
use crate::ops::{
    Backward, Compute, Declared, Entry, Input, InputShapes, Kind, Memory, Reads, Run, Shapes, Spec, State,
    Sym, Symbols, Value, like, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<Incremental<INQAffine>>(), Entry::of::<Incremental<INQConvolution>>()];

op! {
    /// Affine map whose weights become powers of two during training, by incremental network quantization.
    ///
    /// The function counts its forward runs, and checkpoints that are given its graph hold the count. In each run
    /// listed in `inq_iterations`, half of the remaining weights become fixed; in the last one, all of them. A fixed
    /// weight is the nearest power of two, or zero. It never changes again: forward runs write it back to `weight`, and
    /// the mask of fixed weights to `indicator_fixedweights`. The gradient is the gradient of an affine map with these
    /// weights.
    ///
    /// Args:
    ///     x: Input, shape (batch..., inputs...).
    ///     weight: Weight, shape (inputs, outputs...); forward runs overwrite fixed weights.
    ///     indicator_fixedweights: Array of the shape of `weight`, 1 for fixed weights and 0 elsewhere; overwritten.
    ///     bias: Bias, shape (outputs...); none by default.
    ///     base_axis: First axis of the inputs of the map.
    ///     num_bits: Bits of a fixed weight, at least two. There are `2 ** (num_bits - 2)` powers, the largest one next
    ///         to the largest weight.
    ///     inq_iterations: Numbers of the forward runs, counted from 0, in which weights are fixed.
    ///     selection_algorithm: How the half is selected: `largest_abs`, the larger weights, or `random`.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs...).
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If `num_bits` or `selection_algorithm` is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Zhou et al., Incremental Network Quantization, 2017, arXiv:1702.03044.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0]])
    ///     >>> w = nn.NdArray.from_numpy_array([[0.9], [-0.4]])
    ///     >>> fixed = nn.NdArray((2, 1))
    ///     >>> F.inq_affine(x, w, fixed, inq_iterations=(0,)).data
    ///     array([[0.]], dtype=float32)
    ///     >>> w.data.ravel()  # powers of two now
    ///     array([ 1. , -0.5], dtype=float32)
    /// ```
    INQAffine = inq_affine(x, weight, indicator_fixedweights, bias: optional; base_axis: i64 = 1, num_bits: i64 = 4,
        inq_iterations: Vec<i64> = [], selection_algorithm: String = "largest_abs", seed: i64 = -1)
}

op! {
    /// Convolution whose weights become powers of two during training, by incremental network quantization, as in
    /// `inq_affine`.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...).
    ///     weight: Weight, shape (maps, channels / group, kernel...); forward runs overwrite fixed weights.
    ///     indicator_fixedweights: Array of the shape of `weight`, 1 for fixed weights and 0 elsewhere; overwritten.
    ///     bias: Bias, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: As in `convolution`.
    ///     stride: As in `convolution`.
    ///     dilation: As in `convolution`.
    ///     group: As in `convolution`.
    ///     num_bits: Bits of a fixed weight, at least two.
    ///     inq_iterations: Numbers of the forward runs, counted from 0, in which weights are fixed.
    ///     selection_algorithm: How the half is selected: `largest_abs`, the larger weights, or `random`.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), as by `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If `num_bits` or `selection_algorithm` is out of range, or an argument has not one number for
    ///         each spatial axis.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Source:
    ///     Zhou et al., Incremental Network Quantization, 2017, arXiv:1702.03044.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[0.9, -0.4]]])
    ///     >>> fixed = nn.NdArray((1, 1, 2))
    ///     >>> F.inq_convolution(x, w, fixed, inq_iterations=(0,)).data
    ///     array([[[0.]]], dtype=float32)
    ///     >>> w.data.ravel()  # powers of two now
    ///     array([ 1. , -0.5], dtype=float32)
    /// ```
    INQConvolution = inq_convolution(x, weight, indicator_fixedweights, bias: optional;
        base_axis: i64 = 1, pad: Option<Vec<i64>> = None, stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None, group: i64 = 1, num_bits: i64 = 4, inq_iterations: Vec<i64> = [],
        selection_algorithm: String = "largest_abs", seed: i64 = -1)
}

weighted!(affine: INQAffine);
weighted!(convolution: INQConvolution);

/// The schedule and the form of quantization.
#[derive(Clone, Copy)]
pub(crate) struct WeightSchedule<'a> {
    /// Bits of a fixed weight.
    bits: i64,
    /// Numbers of the forward runs, counted from 0, in which weights are fixed.
    iterations: &'a [i64],
    /// `largest_abs` or `random`: how weights are selected.
    algorithm: &'a str,
    /// The seed of the random choice of weights to fix.
    seed: i64,
}

/// A [`Weighted`] layer that quantizes its weights step by step.
pub(crate) trait IncrementalLayer: Weighted {
    /// The schedule and the form of quantization.
    fn schedule(&self) -> WeightSchedule<'_>;
}

/// Implements [`IncrementalLayer`] for layers with these arguments.
macro_rules! incremental_layers {
    ($($ty:ident)+) => {$(
        impl IncrementalLayer for $ty {
            fn schedule(&self) -> WeightSchedule<'_> {
                WeightSchedule {
                    bits: self.num_bits,
                    iterations: &self.inq_iterations,
                    algorithm: &self.selection_algorithm,
                    seed: self.seed,
                }
            }
        }
    )+};
}
incremental_layers!(INQAffine INQConvolution);

/// Adapts an [`IncrementalLayer`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Incremental<C>(C);

impl<C: Declared> Declared for Incremental<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        C::bind(values).map(Self)
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
}

/// The state of a function between runs.
struct Runs<T> {
    /// The number of forward runs so far.
    count: i64,
    /// The weights of the last run.
    weight: SavedMemory<T>,
    /// The weights that were fixed already.
    fixed: SavedMemory<bool>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { count: 0, weight: SavedMemory::default(), fixed: SavedMemory::default() }
    }
}

impl<T: Float> Runs<T> {
    /// The state as bytes: the count, the bytes of a weight, the weights, and whether each is fixed.
    fn bytes(&self) -> Vec<u8> {
        let width = size_of::<T>();
        let mut bytes = self.count.to_le_bytes().to_vec();
        bytes.push(width as u8);
        for w in self.weight.iter().map(|w| w.real()) {
            let (single, double) = ((w as f32).to_le_bytes(), w.to_le_bytes());
            bytes.extend_from_slice(if width == size_of::<f32>() { &single } else { &double });
        }
        bytes.extend(self.fixed.iter().map(|fixed| u8::from(*fixed)));
        bytes
    }

    /// The state of these bytes. None if they are of another type or broken.
    fn of(bytes: &[u8]) -> Option<Self> {
        let width = size_of::<T>();
        let (count, bytes) = bytes.split_first_chunk()?;
        let (of, bytes) = bytes.split_first()?;
        let n = bytes.len() / (width + 1);
        if usize::from(*of) != width || bytes.len() != n * (width + 1) {
            return None;
        }
        let (weights, fixed) = bytes.split_at(n * width);
        let mut runs = Self { count: i64::from_le_bytes(*count), ..Self::default() };
        runs.weight.set(weights.chunks_exact(width).map(|w| match <[u8; 4]>::try_from(w) {
            Ok(w) => T::of(f64::from(f32::from_le_bytes(w))),
            Err(_) => T::of(w.first_chunk().map_or(0.0, |w| f64::from_le_bytes(*w))),
        }));
        runs.fixed.set(fixed.iter().map(|fixed| *fixed != 0));
        Some(runs)
    }
}

/// The most bits for exponents. More bits describe no further numbers of 64 bits.
const MOST_BITS: i64 = 16;

impl WeightSchedule<'_> {
    /// Marks the weights that become fixed in run number `count`.
    fn choose<T: Float>(self, count: i64, w: &[T], fixed: &mut [T], draw: impl FnOnce() -> PhiloxKey) {
        if !self.iterations.contains(&count) {
            return;
        }
        if self.iterations.last() == Some(&count) {
            return fixed.fill(T::ONE);
        }
        let mut left: List<usize> = (0..w.len()).filter(|i| fixed[*i] == T::ZERO).collect();
        if self.algorithm == "random" {
            let mut drawn = Zeros::<f64>::new(w.len());
            draw().uniform(0.0, 1.0, &mut drawn);
            left.iter().filter(|i| drawn[**i] < 0.5).for_each(|i| fixed[*i] = T::ONE);
            return;
        }
        let size = |i: usize| w[i].abs().real();
        left.sort_unstable_by(|a, b| size(*b).total_cmp(&size(*a)).then(a.cmp(b)));
        let half = left.len() / 2;
        // As in the original, at least one weight is fixed.
        left.iter().take(half.max(1)).for_each(|i| fixed[*i] = T::ONE);
    }

    /// Rounds the fixed weights to powers of two.
    fn quantize<T: Float>(self, w: &mut [T], fixed: &[T]) {
        let most = w.iter().fold(0.0, |most: f64, v| most.max(v.abs().real()));
        let most = if most == 0.0 { 1.0 } else { most };
        // Rounds to the nearer power, not to the nearer exponent.
        let exponent = |size: f64| {
            let log = size.log2();
            log.floor() + f64::from(u8::from(log - log.floor() >= 1.5_f64.log2()))
        };
        let highest = exponent(most);
        let lowest = highest + 1.0 - (self.bits.min(MOST_BITS) as f64 - 2.0).exp2();
        let threshold = (lowest - 1.0).exp2();
        for (w, fixed) in w.iter_mut().zip(fixed) {
            let size = w.abs().real();
            if *fixed != T::ONE || size.is_nan() {
                continue;
            }
            let power = if size < threshold { 0.0 } else { exponent(size).clamp(lowest, highest).exp2() };
            *w = T::of(if *w < T::ZERO { -power } else { power });
        }
    }
}

/// Copies its first input. It ignores the values of the second input, which makes it run after the function that
/// computes that input.
#[derive(Clone)]
struct OrderedAfter;

impl Declared for OrderedAfter {
    const SPEC: Spec = Spec {
        name: "after",
        type_name: "After",
        raw_doc: " The first input, once the second is computed.",
        inputs: &[Input { name: "x", kind: Kind::float }, Input { name: "y", kind: Kind::float }],
        args: &[],
    };
    /// Refuses: only gradients make this operation.
    fn bind(_: &[Value]) -> Result<Self> {
        Err(Error::NotImplemented("after: is made by gradients only".into()))
    }
    fn values(&self) -> Vec<Value> {
        Vec::new()
    }
}

impl Compute for OrderedAfter {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).copy_from_slice(run.x(0));
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0)), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl<C: IncrementalLayer> Compute for Incremental<C> {
    const HOSTS_EPILOGUE: bool = true;
    const IS_RANDOM: bool = true;

    fn is_random(&self) -> bool {
        self.0.schedule().algorithm == "random"
    }

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        self.0.open(arg, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (name, schedule) = (C::SPEC.name, self.0.schedule());
        if !(2..=64).contains(&schedule.bits) {
            return Err(Error::argument(name, "num_bits", "from 2 to 64", schedule.bits));
        }
        if !["largest_abs", "random"].contains(&schedule.algorithm) {
            return Err(Error::argument(
                name,
                "selection_algorithm",
                "largest_abs or random",
                schedule.algorithm,
            ));
        }
        let (x0, w) = (x.get(0), x.get(1));
        let shapes = self.0.output([x0, w], x.find(3))?;
        if x.get(2) != w {
            return Err(Error::shape(name, "indicator_fixedweights of the shape of weight", [w, x.get(2)]));
        }
        Ok(shapes)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &crate::array::Shape) -> usize {
        let plain = [x.get(0), x.get(1)];
        self.0.plain().multiplications(&InputShapes { x: &plain, present: u64::MAX, values: None }, y)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (schedule, shape) = (self.0.schedule(), run.x_shape(1));
        let known = run.state::<Runs<T>>().weight.len() == shape.size();
        if !(run.is_recomputation() && known) {
            let key =
                run.random(schedule.seed, if schedule.algorithm == "random" { shape.size() } else { 0 });
            let (w, fixed) = (run.overwrite(1), run.overwrite(2));
            let runs = run.state::<Runs<T>>();
            if known {
                let old = w.iter_mut().zip(runs.weight.iter().zip(runs.fixed.iter()));
                old.filter(|(_, (_, fixed))| **fixed).for_each(|(w, (old, _))| *w = *old);
            }
            schedule.choose(runs.count, w, fixed, || key);
            schedule.quantize(w, fixed);
            runs.count += 1;
            runs.weight.set(w.iter().copied());
            runs.fixed.set(fixed.iter().map(|v| *v == T::ONE));
        }
        let weight = memory(&mut run.state::<Runs<T>>().weight, shape);
        // SAFETY: only the borrow ends. The saved memory stays in place during the run.
        let weight = Memory { ptr: weight.ptr, shape };
        let mut inputs: SmallVec<[Memory<'_>; 3]> = SmallVec::new();
        inputs.extend([run.x_memory(0), weight]);
        inputs.extend(run.has(3).then(|| run.x_memory(3)));
        self.0.plain().forward(&mut run.on(&inputs))
    }

    /// The gradients of the plain layer at the quantized weights, straight through to the real ones. The indicators of
    /// fixed weights get zeros.
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let shape = run.x_shape(1);
        if let Some(gx) = run.gx(2) {
            gx.put(|_| T::ZERO);
        }
        let mut weight = Zeros::<T>::new(if run.wants(0) { shape.size() } else { 0 });
        if run.wants(0) {
            weight.copy_from_slice(&run.state::<Runs<T>>().weight);
        }
        let w = if run.wants(0) { memory(&mut weight, shape) } else { run.x_memory(1) };
        let mut inputs: SmallVec<[Memory<'_>; 3]> = SmallVec::new();
        inputs.extend([run.x_memory(0), w]);
        inputs.extend(run.has(3).then(|| run.x_memory(3)));
        let gradients = [0, 1, 3].map(|i| run.gx_memory(i));
        self.0.plain().backward(&mut run.on(&inputs, &gradients[..inputs.len()]))
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let mut inputs: SmallVec<[Sym; 3]> = SmallVec::new();
        // The weight after the forward run.
        inputs.extend([s.x(0), Sym::apply(OrderedAfter, &[s.x(1), s.y(0)])]);
        inputs.extend(s.has(3).then(|| s.x(3)));
        let wanted = [0, 1, 3].map(|i| s.wants(i));
        let found = self.0.plain().gradient(&Symbols::new(&inputs, &[], &[s.gy(0)], &wanted));
        let found = |i: usize| found.get(i).copied().flatten();
        vec![found(0), found(1), None, found(2)]
    }

    // The gradient of `x` reads the quantized weight, which `forward` saves.
    fn reads(&self, gx: usize) -> Reads {
        if gx == 1 { Reads::inputs(0b01) } else { Reads::NOTHING }
    }

    // The output only orders the rule after `forward`, which overwrites the weight.
    fn symbol_reads(&self, gx: usize) -> Reads {
        match gx {
            0 => Reads { inputs: 0b10, outputs: 1 },
            1 => Reads::inputs(0b01),
            _ => Reads::NOTHING,
        }
    }

    fn progress(&self, state: &State) -> Option<Vec<u8>> {
        let single = state.find().map(Runs::<f32>::bytes);
        Some(single.or_else(|| state.find().map(Runs::<f64>::bytes)).unwrap_or_default())
    }

    fn resume(&self, state: &mut State, progress: &[u8]) -> bool {
        let (single, double) = (Runs::<f32>::of(progress), Runs::<f64>::of(progress));
        let is_known = progress.is_empty() || single.is_some() || double.is_some();
        if let Some(runs) = single {
            *state.get() = runs;
        }
        if let Some(runs) = double {
            *state.get() = runs;
        }
        is_known
    }

    /// True for the weight and for the indicators of its fixed elements, which `forward` updates.
    fn overwrites(&self, i: usize) -> bool {
        matches!(i, 1 | 2)
    }
}
