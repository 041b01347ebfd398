//! The weights of a convolution before Winograd's algorithm is used: whether it may be, and scales for its channels.

use super::Winograd;
use super::energies::{PixelEnergies, TOGETHER, energies};
use super::transforms::OUT;
use crate::kernels::Float;
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel};

/// Numbers are scaled before they are squared: squares neither vanish nor overflow from 1e-25 to 1e13.
const SCALE: f64 = (1 << 20) as f64;
/// Least energy of all weights. Smaller weights are used in direct sums.
const LEAST: f64 = 1e-30;
/// Weights of a 3 x 3 kernel.
const TAPS: usize = 9;
/// Outputs of a tile.
const OUTPUTS: usize = OUT * OUT;
/// Columns of weights that a thread adds up at a time.
const COLUMNS: usize = 64 * TAPS;

/// True if there are positive or negative numbers, but not both.
pub(in super::super) fn have_one_sign<'a, T: Float>(values: impl IntoIterator<Item = &'a T>) -> bool {
    let (mut above, mut below) = (false, false);
    for v in values {
        above |= *v > T::ZERO;
        below |= *v < T::ZERO;
        if above && below {
            return false;
        }
    }
    above || below
}

/// The largest distance of the highest binary digit of coarse numbers from the lowest.
const COARSE: i32 = 8;

/// True if the numbers are whole multiples of one power of two, and less than 512 times that power. Examples are
/// binary and ternary weights, small integers and numbers with a fixed point. False if all are zero, or if one is
/// infinite, NaN or subnormal.
pub(in super::super) fn are_coarse<'a, T: Float>(values: impl IntoIterator<Item = &'a T>) -> bool {
    let (mut lowest, mut highest) = (i32::MAX, 0);
    for v in values {
        let bits = v.real().to_bits();
        let (exponent, digits) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        if exponent == 0x7ff || (exponent == 0 && digits != 0) {
            return false;
        }
        if exponent > 0 {
            lowest = lowest.min(exponent - 52 + (digits | 1 << 52).trailing_zeros() as i32);
            highest = highest.max(exponent);
        }
        if highest - COARSE > lowest {
            return false;
        }
    }
    lowest <= highest
}

/// Equal scales for channels, for sums that have no weights.
pub(super) fn even_scales<T: Float>(channels: usize) -> List<T> {
    List::repeat(T::all(SCALE), channels)
}

impl<T: Float> Winograd<'_, T> {
    /// Computes the scales of source channels from the energies of their weights. Returns false if Winograd's algorithm
    /// must not be used: weights are infinite, NaN, too large or too small, or all weights of a target have one sign.
    /// Inputs of one sign must give outputs of one sign then. Nor if all weights are coarse: with coarse inputs, as in
    /// networks of binary numbers, direct sums are exact.
    ///
    /// # Safety
    /// The weights must be readable, and `scales` must hold one scale for each source channel of all groups.
    pub(super) unsafe fn weigh(&self, scales: *mut T) -> bool {
        let (sources, targets) = (self.source.array.channels, self.targets.channels);
        let (channels, maps, group) =
            (self.g.channels / self.g.group, self.g.maps / self.g.group, self.g.group);
        let (row, even, to) =
            (channels * TAPS, even_scales::<T>(maps.max(row_parts(channels * TAPS))), Shared::new(scales));
        let weight = Shared::read_only(self.weight);
        let one_sign = |group: usize, target: usize| {
            // SAFETY: the weights are readable.
            let nines =
                self.weights_of(group, target).flat_map(|p| unsafe { std::slice::from_raw_parts(p, TAPS) });
            have_one_sign(nines)
        };
        // SAFETY: the weights are readable.
        if are_coarse(unsafe { std::slice::from_raw_parts(self.weight, group * maps * row) })
            || (0..group).any(|group| (0..targets).any(|target| one_sign(group, target)))
        {
            return false;
        }
        let parts = if self.forward { row.div_ceil(COLUMNS) } else { maps };
        parallel(group * parts, |task| {
            let (of, part) = (task / parts, task % parts);
            let first = weight.get().cast_const().wrapping_add(of * maps * row);
            let to = to.get().wrapping_add(of * sources);
            let mut sums = [T::ZERO; COLUMNS];
            if self.forward {
                let columns = part * COLUMNS..row.min((part + 1) * COLUMNS);
                energies(&PixelEnergies {
                    from: first.wrapping_add(columns.start),
                    channel: row,
                    channels: maps,
                    scales: even.as_ptr(),
                    pixels: columns.len(),
                    to: sums.as_mut_ptr(),
                });
                for (i, nine) in sums[..columns.len()].chunks_exact(TAPS).enumerate() {
                    // SAFETY: the memory holds all scales, and each task has its own.
                    unsafe { to.add(columns.start / TAPS + i).write(nine.iter().copied().sum()) };
                }
            } else {
                // A row of weights is divided into short rows and a rest.
                let first = first.wrapping_add(part * row);
                let order = |from: usize, channels: usize, pixels: usize, to: *mut T| {
                    energies(&PixelEnergies {
                        from: first.wrapping_add(from),
                        channel: TOGETHER * OUTPUTS,
                        channels,
                        scales: even.as_ptr(),
                        pixels,
                        to,
                    });
                };
                let (all, pixels) = (row_parts(row) - 1, TOGETHER * OUTPUTS);
                order(0, all, pixels, sums.as_mut_ptr());
                order(all * pixels, 1, row - all * pixels, sums[pixels..].as_mut_ptr());
                // SAFETY: as above.
                unsafe { to.add(part).write(sums[..2 * pixels].iter().copied().sum()) };
            }
        });
        (0..group).all(|of| {
            // SAFETY: all of them were written.
            let scales = unsafe { std::slice::from_raw_parts_mut(scales.add(of * sources), sources) };
            let all: T = scales.iter().copied().sum();
            if all < T::INFINITY && all >= T::all(LEAST) {
                let by = T::all(sources as f64) / all;
                for v in scales {
                    *v = T::all(SCALE) * (*v * by).sqrt();
                }
                return true;
            }
            scales.fill(T::all(SCALE));
            // SAFETY: the weights are readable.
            let weights = unsafe { std::slice::from_raw_parts(self.weight.add(of * maps * row), maps * row) };
            weights.iter().all(|v| *v == T::ZERO)
        })
    }
}

/// Number of short rows that a row of weights is divided into. The last one may be shorter.
fn row_parts(row: usize) -> usize {
    row.div_ceil(TOGETHER * OUTPUTS)
}
