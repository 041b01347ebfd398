//! The forward run and the formula of a fused function.

use smallvec::SmallVec;

use crate::array::{DType, Shape};
use crate::kernels::normalization::NormalizeAdd;
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Float, scratch};
use crate::ops::fused::activation::FusedActivation;
use crate::ops::fused::layer::{Within, given, memory, run};
use crate::ops::fused::padded::PaddedConvolution;
use crate::ops::normalizations::batch_normalization::BatchNormalization;
use crate::ops::{Compute, InputShapes, Memory, Op, Reads, Run, Shapes, State, Sym, Symbols, symbol::Tape};
use crate::{Error, Result};

/// The layers of a fused function. Some may be missing.
///
/// The inputs are the inputs of the convolution (or only `x` without one), then `beta`, `gamma`, `mean`, `variance`,
/// and last `z`.
#[derive(Clone)]
pub(crate) struct FusedSteps {
    /// The name of the operation, for messages.
    pub(super) name: &'static str,
    /// The convolution, if there is one.
    pub(super) convolution: Option<PaddedConvolution>,
    /// The normalization. It runs if `beta` is given, or if there is no other layer.
    pub(super) normalization: BatchNormalization,
    /// The activation, which may be the identity.
    pub(super) activation: FusedActivation,
}

/// Values saved by forward runs: the state of each layer, and for gradients the output of the convolution (if batch
/// statistics normalize it) and the value before the activation.
#[derive(Default)]
pub(super) struct SavedSteps<T> {
    /// The state of the convolution.
    pub(super) convolution: State,
    /// The state of the normalization.
    pub(super) normalization: State,
    /// The output of the convolution, if batch statistics normalize it.
    pub(super) hidden: SavedMemory<T>,
    /// The value before the activation, if its gradient reads it.
    pub(super) sums: SavedMemory<T>,
}

impl FusedSteps {
    /// Index of the input `beta`. `gamma`, `mean` and `variance` follow.
    pub(super) fn beta(&self) -> usize {
        if self.convolution.is_some() { 3 } else { 1 }
    }

    /// Index of the input `z`.
    pub(super) fn z(&self) -> usize {
        self.beta() + 4
    }

    /// True if there is a normalization. `has` says which inputs are given.
    pub(super) fn normalizes(&self, has: impl Fn(usize) -> bool) -> bool {
        self.convolution.is_none() || has(self.beta())
    }

    /// Returns the normalization as an epilogue of the convolution, if it can be one.
    fn normalizes_in_place<'a>(
        &'a self,
        shape: &'a Shape,
        input: impl Fn(usize) -> Option<&'a Shape> + 'a,
    ) -> bool {
        let (x, present) = given(self.of_normalization(shape, input));
        self.normalization.fits_epilogue(&InputShapes { x: &x, present, values: None })
    }

    /// The inputs of the normalization of `x`.
    pub(super) fn of_normalization<'a, T: Copy + 'a>(
        &'a self,
        x: T,
        input: impl Fn(usize) -> Option<T> + 'a,
    ) -> impl Iterator<Item = Option<T>> + 'a {
        std::iter::once(Some(x)).chain((self.beta()..self.z()).map(input))
    }

    /// True if forward runs overwrite input `i`, a running statistic.
    pub(super) fn overwrites(&self, i: usize) -> bool {
        self.normalization.batch_stat && (self.beta() + 2..self.z()).contains(&i)
    }

    /// The shape of the convolution's output.
    fn convolved(&self, padded: &PaddedConvolution, x: &InputShapes<'_>) -> Result<Shape> {
        let statistics = (self.beta()..self.z()).filter(|i| x.find(*i).is_some()).count();
        if !matches!(statistics, 0 | 4) {
            let expected = "given with gamma, mean and variance, or none of the four";
            return Err(Error::argument(self.name, "beta", expected, format!("{statistics} of them")));
        }
        let (framed, given_x) = (padded.frame(x.get(0)), [x.get(0)]);
        let (mut first, mut convolution) = (given_x[0].clone(), &padded.convolution);
        if let Some((frame, plain)) = &framed {
            first =
                frame.shapes(&InputShapes { x: &given_x, present: u64::MAX, values: None })?.swap_remove(0);
            convolution = plain;
        }
        let (inputs, present) = given([Some(&first), x.find(1), x.find(2)]);
        Ok(convolution.shapes(&InputShapes { x: &inputs, present, values: None })?.swap_remove(0))
    }

    /// The shapes of the outputs.
    pub(super) fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let y = match &self.convolution {
            Some(padded) => self.convolved(padded, x)?,
            None => x.get(0).clone(),
        };
        let mut all = Shapes::from_elem(y.clone(), 1);
        if self.normalizes(|i| x.find(i).is_some()) {
            let (inputs, present) = given(self.of_normalization(&y, |i| x.find(i)));
            all = self.normalization.shapes(&InputShapes { x: &inputs, present, values: None })?;
        }
        match x.find(self.z()) {
            Some(z) if *z != y => {
                Err(Error::shape(self.name, format!("z of shape {y}, as the output has"), [z]))
            }
            _ => Ok(all),
        }
    }

    /// Runs the convolution with its padding.
    pub(super) fn convolve<T: Float>(
        padded: &PaddedConvolution,
        x: &[Option<Memory<'_>>],
        to: Memory<'_>,
        state: &mut State,
        within: Within<'_>,
        rounds: Option<DType>,
    ) -> Result<()> {
        let Some(first) = x[0] else { return Ok(()) };
        padded.framed::<T>(first, true, rounds, |convolution, first, _| {
            let (inputs, present) = given([Some(first), x[1], x[2]]);
            convolution.forward(&mut run::<T>((&inputs, present), &[to], state, within))
        })
    }

    /// Runs the layers, in one pass over memory where possible. With [`Run::rounds`], each alone, rounding its result.
    pub(super) fn forward<T: Float>(&self, whole: &mut Run<'_, T>) -> Result<()> {
        if let Some(to) = whole.rounds() {
            return self.forward_in_layers(whole, to);
        }
        let (n, shape) = (whole.y_shape(0).size(), whole.y_shape(0));
        let x: SmallVec<[_; 8]> = (0..=self.z()).map(|i| whole.has(i).then(|| whole.x_memory(i))).collect();
        let mut y: SmallVec<[_; 3]> = (0..whole.n_outputs()).map(|o| whole.y_memory(o)).collect();
        let other = whole.has(self.z()).then(|| whole.x(self.z()));
        let recompute = whole.is_recomputation();
        let within = Within { recompute, input_cache: whole.input_cache(), ..Within::PLAIN };
        let saved = whole.state::<SavedSteps<T>>();
        let last = y[0];
        if self.activation.reads().inputs != 0 {
            saved.sums.resize(n, T::ZERO);
            y[0] = memory(&mut saved.sums, shape);
        }
        let to = y[0];
        let finish =
            |normalize| NormalizeAdd::new(to.ptr.cast(), n, normalize, other, self.activation.as_epilogue());
        let normalize = |from: Memory<'_>, state: &mut State| {
            let (rows, (inputs, present)) = (finish(None), given(self.of_normalization(from, |i| x[i])));
            let within = Within { recompute, tail: rows.tail(), input_cache: None };
            self.normalization.forward(&mut run::<T>((&inputs, present), &y, state, within))
        };
        match (&self.convolution, x[0]) {
            (None, Some(from)) => normalize(from, &mut saved.normalization)?,
            (Some(padded), Some(_)) if !self.normalizes(|i| x[i].is_some()) => {
                let rows = finish(None);
                let within = Within { tail: rows.tail(), ..within };
                Self::convolve::<T>(padded, &x, to, &mut saved.convolution, within, None)?;
            }
            (Some(padded), Some(_)) if self.normalization.batch_stat => {
                saved.hidden.resize(n, T::ZERO);
                let hidden = memory(&mut saved.hidden, shape);
                Self::convolve::<T>(padded, &x, hidden, &mut saved.convolution, within, None)?;
                normalize(hidden, &mut saved.normalization)?;
            }
            (Some(padded), Some(_)) if self.normalizes_in_place(shape, |i| x[i].map(|x| x.shape)) => {
                let (inputs, present) = given(self.of_normalization(to, |i| x[i]));
                let by = run::<T>((&inputs, present), &[], &mut saved.normalization, Within::PLAIN);
                let rows = finish(self.normalization.in_place(by));
                let within = Within { tail: rows.tail(), ..within };
                Self::convolve::<T>(padded, &x, to, &mut saved.convolution, within, None)?;
            }
            (Some(padded), Some(_)) => {
                scratch::with(n, |hidden: &mut [T]| {
                    let hidden = memory(hidden, shape);
                    Self::convolve::<T>(padded, &x, hidden, &mut saved.convolution, within, None)?;
                    normalize(hidden, &mut saved.normalization)
                })?;
            }
            (_, None) => {}
        }
        if self.activation.is_separate_pass() {
            let mut state = State::default();
            self.activation.forward(&mut run::<T>((&[to], u64::MAX), &[last], &mut state, Within::PLAIN))?;
        }
        Ok(())
    }

    /// The values that the backward kernel reads if all inputs are given.
    pub(super) fn reads(&self, gx: usize) -> Reads {
        let beta = self.beta();
        // The hidden output of the convolution is saved or recomputed.
        let first = match &self.convolution {
            None => 1,
            Some(_) if self.normalization.batch_stat => 0,
            Some(_) => 0b111,
        };
        let of_normalization = |i: usize| {
            let reads = self.normalization.reads(i).inputs;
            ((reads & 1) * first) | ((reads >> 1 & 0b1111) << beta)
        };
        let inputs = match (&self.convolution, gx) {
            (_, gx) if gx >= self.z() => 0,
            (_, gx) if gx >= beta => of_normalization(gx + 1 - beta),
            (Some(padded), gx) => of_normalization(0) | padded.convolution.reads(gx).inputs & 0b111,
            (None, _) => of_normalization(0),
        };
        Reads { inputs, outputs: self.activation.reads().outputs & 1 }
    }

    /// The values that the formula reads: all except those overwritten by the forward run.
    pub(super) fn symbol_reads(&self) -> Reads {
        Reads::inputs((0..=self.z()).filter(|i| !self.overwrites(*i)).fold(0, |mask, i| mask | 1 << i))
    }

    /// The outputs as a composition of other operations.
    fn compose(&self, s: &Symbols) -> SmallVec<[Sym; 3]> {
        let input = |i: usize| s.has(i).then(|| s.x(i));
        let mut y = s.x(0);
        if let Some(padded) = &self.convolution {
            let frame = padded.frame(&y.shape());
            let (x, convolution) = match frame {
                Some((frame, convolution)) => (Sym::apply(frame, &[y]), convolution),
                None => (y, padded.convolution.clone()),
            };
            let (inputs, present) = given([Some(x), input(1), input(2)]);
            y = Sym::apply_op(Op::with_inputs(convolution, present), &inputs)[0];
        }
        let mut all: SmallVec<[Sym; 3]> = SmallVec::from_slice(&[y]);
        if self.normalizes(|i| s.has(i)) {
            let read = |i: usize| if self.overwrites(i) { None } else { input(i) };
            let (inputs, present) = given(self.of_normalization(y, read));
            all = Sym::apply_op(Op::with_inputs(self.normalization.clone(), present), &inputs)
                .into_iter()
                .collect();
        }
        if let Some(z) = input(self.z()) {
            all[0] = all[0] + z;
        }
        all[0] = self.activation.on(all[0]);
        all
    }

    /// The gradients as formulas, derived from the composition.
    pub(super) fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (outputs, tape) = Tape::of(|| self.compose(s));
        let outputs: Vec<_> = outputs.into_iter().enumerate().map(|(o, y)| (y, s.gy(o))).collect();
        let (inputs, present) =
            given((0..=self.z()).map(|i| (s.wants(i) && !self.overwrites(i)).then(|| s.x(i))));
        let mut found = tape.gradients(&outputs, &inputs).into_iter();
        (0..=self.z()).map(|i| if present >> i & 1 == 1 { found.next().flatten() } else { None }).collect()
    }
}
