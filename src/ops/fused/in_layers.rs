//! The forward run of a fused function for 16-bit types. Each layer rounds its result, as a chain of separate functions
//! does.

use smallvec::SmallVec;

use crate::Result;
use crate::array::DType;
use crate::kernels::rounding::round;
use crate::kernels::{Float, map};
use crate::ops::fused::layer::{Within, given, memory, run};
use crate::ops::fused::steps::{FusedSteps, SavedSteps};
use crate::ops::{Compute, Memory, Run, State};

impl FusedSteps {
    /// Like [`FusedSteps::forward`], but rounds the result of each layer to the type `to`.
    pub(super) fn forward_in_layers<T: Float>(&self, whole: &mut Run<'_, T>, to: DType) -> Result<()> {
        let (n, shape, to) = (whole.y_shape(0).size(), whole.y_shape(0), Some(to));
        let x: SmallVec<[_; 8]> = (0..=self.z()).map(|i| whole.has(i).then(|| whole.x_memory(i))).collect();
        let mut y: SmallVec<[_; 3]> = (0..whole.n_outputs()).map(|o| whole.y_memory(o)).collect();
        let other = whole.has(self.z()).then(|| whole.x(self.z()));
        let within =
            Within { recompute: whole.is_recomputation(), input_cache: whole.input_cache(), ..Within::PLAIN };
        let (result, last) = (whole.y(0), y[0]);
        let saved = whole.state::<SavedSteps<T>>();
        let sums: &mut [T] = if self.activation.is_present() {
            saved.sums.resize(n, T::ZERO);
            &mut saved.sums
        } else {
            result
        };
        y[0] = memory(sums, shape);
        let Some(mut from) = x[0] else { return Ok(()) };
        if let Some(padded) = &self.convolution {
            let normalizes = self.normalizes(|i| x[i].is_some());
            if normalizes {
                saved.hidden.resize(n, T::ZERO);
            }
            let hidden: &mut [T] = if normalizes { &mut saved.hidden } else { &mut *sums };
            let at = memory(hidden, shape);
            Self::convolve::<T>(padded, &x, at, &mut saved.convolution, within, to)?;
            round(hidden, to);
            from = at;
        }
        if self.normalizes(|i| x[i].is_some()) {
            let (inputs, present) = given(self.of_normalization(from, |i| x[i]));
            let within = Within { input_cache: None, ..within };
            self.normalization.forward(&mut run::<T>(
                (&inputs, present),
                &y,
                &mut saved.normalization,
                within,
            ))?;
            round(sums, to);
        }
        if let Some(other) = other {
            map::update(sums, other, |a, b| a + b);
            round(sums, to);
        }
        if self.activation.is_present() {
            let (from, mut state): ([Memory<'_>; 1], _) = ([memory(sums, shape)], State::default());
            self.activation.forward(&mut run::<T>((&from, u64::MAX), &[last], &mut state, Within::PLAIN))?;
        }
        Ok(())
    }
}
