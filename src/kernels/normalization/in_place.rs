//! Normalization by given statistics, in place and in chunks, of the output of another kernel.

use super::{NormLayout, Stats, or_all};
use crate::kernels::Float;
use crate::kernels::broadcast::Cycle;
use crate::kernels::epilogue::Activation;
use crate::kernels::scratch::SavedMemory;
use crate::kernels::simd::row::each;
use crate::kernels::simd::{Vector, Work};

/// Statistics and parameters of channels, for an array in which the channels repeat with a period.
#[derive(Default)]
pub struct InPlace<T> {
    /// The number of adjacent elements of a channel.
    together: usize,
    /// The mean of each channel, rounded.
    mean: SavedMemory<T>,
    /// The rounding error of the mean of each channel.
    rest: SavedMemory<T>,
    /// The factor of the difference from the mean. Includes gamma if adjacent elements belong to one channel.
    scale: SavedMemory<T>,
    /// The factor of the normalized elements of a channel, if `scale` does not include it.
    gamma: SavedMemory<T>,
    /// The number added to each element of a channel.
    beta: SavedMemory<T>,
}

impl NormLayout {
    /// The number of adjacent elements of a channel, if the array is cyclic over channels.
    pub fn cycle(&self) -> Option<usize> {
        self.broadcast.cycle()
    }
}

impl<T: Float> InPlace<T> {
    /// Sets the statistics for a normalization as [`super::normalize_by`]. Returns false if the array is not cyclic
    /// over channels.
    pub fn set(
        &mut self,
        layout: &NormLayout,
        stats: &Stats<T>,
        gamma: Option<&[T]>,
        beta: Option<&[T]>,
    ) -> bool {
        let Some(together) = layout.cycle() else { return false };
        self.together = together;
        self.mean.set(stats.mean.iter().map(|(mean, _)| *mean));
        self.rest.set(stats.mean.iter().map(|(_, rest)| *rest));
        self.gamma.set(or_all(layout, gamma, T::ONE).iter().copied());
        self.beta.set(or_all(layout, beta, T::ZERO).iter().copied());
        self.scale.set(stats.scale.iter().copied());
        if layout.in_rows() {
            self.scale.iter_mut().zip(&*self.gamma).for_each(|(scale, gamma)| *scale = *scale * *gamma);
        }
        true
    }

    /// Normalizes the `n` elements at `at`, and applies the activation. The first one is element `start` of the array.
    ///
    /// # Safety
    /// The elements must be valid, and nothing else may use them meanwhile.
    pub unsafe fn normalize(&self, mut at: *mut T, start: usize, n: usize, activation: Activation) {
        let cycle = Cycle { period: self.scale.len(), together: self.together };
        for (channel, n) in cycle.pieces(start, n) {
            T::in_registers(InPlacePiece { by: self, at, channel, n, activation });
            at = at.wrapping_add(n);
        }
    }
}

/// Elements of one channel, or of several with one element each.
struct InPlacePiece<'a, T> {
    /// The statistics and parameters.
    by: &'a InPlace<T>,
    /// The first element.
    at: *mut T,
    /// The first channel.
    channel: usize,
    /// The number of elements.
    n: usize,
    /// The activation, which is applied last.
    activation: Activation,
}

impl<T: Float> Work<T> for InPlacePiece<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { by, at: x, channel: c, n, activation } = self;
        // SAFETY: the elements are there, and so are their channels and the instructions.
        unsafe {
            if by.together > 1 {
                let (mean, rest) = (V::all(by.mean[c]), V::all(by.rest[c]));
                let (scale, beta) = (V::all(by.scale[c]), V::all(by.beta[c]));
                // Subtracting zero changes no bit. Given statistics are not rounded.
                if by.rest[c] == T::ZERO && !by.rest[c].real().is_sign_negative() {
                    return each::<V>(
                        n,
                        #[inline(always)]
                        |at| at.store(activation.on(at.load(x).sub(mean).mul(scale).add(beta)), x),
                    );
                }
                return each::<V>(
                    n,
                    #[inline(always)]
                    |at| at.store(activation.on(at.load(x).sub(mean).sub(rest).mul(scale).add(beta)), x),
                );
            }
            let [mean, rest, scale, gamma, beta] =
                [&by.mean, &by.rest, &by.scale, &by.gamma, &by.beta].map(|of| of[c..].as_ptr());
            each::<V>(
                n,
                #[inline(always)]
                |at| {
                    let unit = at.load(x).sub(at.load(mean)).sub(at.load(rest)).mul(at.load(scale));
                    at.store(activation.on(unit.mul(at.load(gamma)).add(at.load(beta))), x);
                },
            );
        }
    }
}
