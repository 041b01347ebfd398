//! The backward run of a fused function: its layers, last one first.

use smallvec::SmallVec;

use crate::array::{DType, InputCache};
use crate::kernels::rounding::round;
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Float, scratch};
use crate::ops::fused::layer::{WantedGradient, Within, given, memory, run_backward};
use crate::ops::fused::padded::PaddedConvolution;
use crate::ops::fused::steps::{FusedSteps, SavedSteps};
use crate::ops::{Backward, Compute, Grad, Memory, Reads, State};
use crate::{Error, Result};

/// The arrays of a backward run, numbered as declared.
struct BackwardArrays<'a> {
    /// The layers.
    steps: &'a FusedSteps,
    /// The inputs. None for an input that was not given.
    x: SmallVec<[Option<Memory<'a>>; 8]>,
    /// The requested gradients of the inputs.
    gx: SmallVec<[WantedGradient<'a>; 8]>,
    /// The outputs.
    y: SmallVec<[Memory<'a>; 3]>,
    /// The gradients of the outputs.
    gy: SmallVec<[Memory<'a>; 3]>,
    /// The input from which data may be cached, if any.
    input_cache: Option<InputCache<'a>>,
    /// The type that gradients are rounded to between layers.
    rounds: Option<DType>,
}

impl FusedSteps {
    /// Runs all layers backward.
    pub(super) fn backward<T: Float>(&self, whole: &mut Backward<'_, T>) -> Result<()> {
        let (y, gy) = (0..whole.n_outputs()).map(|o| whole.y_and_gy(o)).unzip();
        let arrays = BackwardArrays {
            steps: self,
            x: (0..=self.z()).map(|i| whole.has(i).then(|| whole.x_memory(i))).collect(),
            gx: (0..=self.z()).map(|i| whole.gx_memory(i)).collect(),
            y,
            gy,
            input_cache: whole.input_cache(),
            rounds: whole.rounds(),
        };
        let (gy, of_z) = (whole.gy(0), whole.gx(self.z()));
        let saved = whole.state::<SavedSteps<T>>();
        if self.activation.reads() == Reads::NOTHING {
            return arrays.of_sum(gy, of_z, saved);
        }
        scratch::with(gy.len(), |g: &mut [T]| {
            arrays.of_activation(g, saved)?;
            round(g, arrays.rounds);
            arrays.of_sum(g, of_z, saved)
        })
    }

    /// Returns an error if the forward run did not save these values.
    fn check_saved<T: Copy>(&self, saved: &SavedMemory<T>, n: usize) -> Result<()> {
        if saved.len() == n {
            return Ok(());
        }
        Err(Error::Graph(format!("{}: expected a forward run before backward, got none", self.name)))
    }
}

impl BackwardArrays<'_> {
    /// Writes the gradient of the value before the activation.
    fn of_activation<T: Float>(&self, g: &mut [T], saved: &mut SavedSteps<T>) -> Result<()> {
        let (activation, shape) = (&self.steps.activation, self.y[0].shape);
        let mut before = self.y[0];
        if activation.reads().inputs != 0 {
            self.steps.check_saved(&saved.sums, g.len())?;
            before = memory(&mut saved.sums, shape);
        }
        let (to, mut state) = ([Some((memory(g, shape), false))], State::default());
        let arrays = (&self.y[..1], &self.gy[..1]);
        activation.backward(&mut run_backward::<T>((&[before], 1), arrays, &to, &mut state, None))
    }

    /// Continues backward from the gradient `g` of the sum, which includes `z`.
    fn of_sum<T: Float>(&self, g: &[T], of_z: Option<Grad<'_, T>>, saved: &mut SavedSteps<T>) -> Result<()> {
        if let Some(of_z) = of_z {
            of_z.put_all(g);
        }
        let (steps, g) = (self.steps, Memory { ptr: g.as_ptr().cast_mut().cast(), shape: self.y[0].shape });
        let padded = steps.convolution.as_ref().filter(|_| self.gx[..3].iter().any(Option::is_some));
        if !steps.normalizes(|i| self.x[i].is_some()) {
            return padded.map_or(Ok(()), |padded| self.of_convolution(padded, g, saved));
        }
        if steps.convolution.is_none() {
            let Some(x) = self.x[0] else { return Ok(()) };
            return self.of_normalization::<T>(x, g, self.gx[0], saved);
        }
        scratch::with(if padded.is_some() { g.shape.size() } else { 0 }, |hidden: &mut [T]| {
            let of_hidden = padded.map(|_| (memory(hidden, g.shape), false));
            self.of_hidden(g, of_hidden, saved)?;
            round(hidden, self.rounds);
            let (Some(padded), Some((of_hidden, _))) = (padded, of_hidden) else { return Ok(()) };
            self.of_convolution(padded, of_hidden, saved)
        })
    }

    /// The gradients of the normalization of the convolution's output.
    fn of_hidden<T: Float>(
        &self,
        g: Memory<'_>,
        wanted: WantedGradient<'_>,
        saved: &mut SavedSteps<T>,
    ) -> Result<()> {
        let steps = self.steps;
        if steps.normalization.batch_stat {
            steps.check_saved(&saved.hidden, g.shape.size())?;
            let hidden = memory(&mut saved.hidden, g.shape);
            return self.of_normalization(hidden, g, wanted, saved);
        }
        let reads_hidden = [1, 3].into_iter().any(|i| self.gx[steps.beta() + i].is_some());
        let Some(padded) = steps.convolution.as_ref().filter(|_| reads_hidden) else {
            return self.of_normalization(g, g, wanted, saved); // anything of the shape
        };
        scratch::with(g.shape.size(), |hidden: &mut [T]| {
            let (at, within) =
                (memory(hidden, g.shape), Within { input_cache: self.input_cache, ..Within::PLAIN });
            FusedSteps::convolve::<T>(padded, &self.x, at, &mut saved.convolution, within, self.rounds)?;
            round(hidden, self.rounds);
            self.of_normalization(at, g, wanted, saved)
        })
    }

    /// The gradients of the normalization of `x`. The gradient of `x` itself is optional.
    fn of_normalization<T: Float>(
        &self,
        x: Memory<'_>,
        g: Memory<'_>,
        wanted: WantedGradient<'_>,
        saved: &mut SavedSteps<T>,
    ) -> Result<()> {
        let steps = self.steps;
        let (inputs, present) = given(steps.of_normalization(x, |i| self.x[i]));
        let statistics = (steps.beta()..steps.z()).filter(|i| self.x[*i].is_some()).map(|i| self.gx[i]);
        let wanted: SmallVec<[WantedGradient<'_>; 5]> = std::iter::once(wanted).chain(statistics).collect();
        let gy: SmallVec<[Memory<'_>; 3]> = std::iter::once(g).chain(self.gy[1..].iter().copied()).collect();
        let (arrays, state) = ((&gy[..], &gy[..]), &mut saved.normalization);
        steps.normalization.backward(&mut run_backward::<T>((&inputs, present), arrays, &wanted, state, None))
    }

    /// The gradients of the convolution, whose output has the gradient `g`.
    fn of_convolution<T: Float>(
        &self,
        padded: &PaddedConvolution,
        g: Memory<'_>,
        saved: &mut SavedSteps<T>,
    ) -> Result<()> {
        let Some(x) = self.x[0] else { return Ok(()) };
        padded.framed::<T>(x, self.gx[1].is_some(), self.rounds, |convolution, framed, frame| {
            let through = frame.filter(|_| self.gx[0].is_some());
            scratch::with(through.map_or(0, |_| framed.shape.size()), |buffer: &mut [T]| {
                let of_framed = through.map_or(self.gx[0], |_| Some((memory(buffer, framed.shape), false)));
                let (inputs, present) = given([Some(framed), self.x[1], self.x[2]]);
                let others = (1..3).filter(|i| self.x[*i].is_some()).map(|i| self.gx[i]);
                let wanted: SmallVec<[WantedGradient<'_>; 3]> =
                    std::iter::once(of_framed).chain(others).collect();
                let (gy, state) = ([g], &mut saved.convolution);
                let arrays = ((&inputs[..], present), (&gy[..], &gy[..]));
                let mut run = run_backward::<T>(arrays.0, arrays.1, &wanted, state, self.input_cache);
                convolution.backward(&mut run)?;
                round(buffer, self.rounds);
                let (Some(frame), Some((of_framed, _))) = (through, of_framed) else { return Ok(()) };
                let (gy, gx, mut state) = ([of_framed], [self.gx[0]], State::default());
                frame.backward(&mut run_backward::<T>((&[x], 1), (&gy, &gy), &gx, &mut state, None))
            })
        })
    }
}
