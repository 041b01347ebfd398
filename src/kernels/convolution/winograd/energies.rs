//! The energies of pixels, which are sums of squares over channels, and the range of these energies.

use crate::kernels::Float;
use crate::kernels::convolution::isa;
use crate::kernels::simd::Vector;

/// An order to add up `(scale x)^2` over channels for each of some pixels that are neighbours.
pub(in crate::kernels) struct PixelEnergies<T> {
    /// The first pixel of the first channel.
    pub(super) from: *const T,
    /// The distance of channels.
    pub(super) channel: usize,
    /// The number of channels.
    pub(super) channels: usize,
    /// A scale for each channel.
    pub(super) scales: *const T,
    /// The number of pixels.
    pub(super) pixels: usize,
    /// The energy of each pixel, which is written.
    pub(super) to: *mut T,
}

/// Registers of sums that are added up together.
pub(super) const TOGETHER: usize = 4;

/// A row of pixels to be packed channel by channel, while their energies are computed: `to[p * 2 WIDTH + c]`. There are
/// up to two registers of channels. Channels of a register beyond `channels` become zeros.
pub(in crate::kernels) struct PixelsToPack<T> {
    /// The first channel of the first pixel.
    pub(super) from: *const T,
    /// The distance of channels.
    pub(super) channel: usize,
    /// The number of channels.
    pub(super) channels: usize,
    /// The number of pixels.
    pub(super) pixels: usize,
    /// The destination of the first pixel.
    pub(super) to: *mut T,
    /// A scale for each channel.
    pub(super) scales: *const T,
    /// The energies of the pixels.
    pub(super) energies: *mut T,
    /// True if energies are written, false if they are added to.
    pub(super) are_first: bool,
}

/// Sums that are added up side by side, since each addition waits for the one before.
const SUMS: usize = 4;

impl<T: Float> PixelsToPack<T> {
    /// Packs the pixels.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        // SAFETY: the caller's promise; masks keep within the pixels.
        unsafe {
            for p in (0..self.pixels).step_by(V::WIDTH) {
                let n = V::WIDTH.min(self.pixels - p);
                let (mask, energies) = (V::first(n), self.energies.add(p));
                let mut sums = [V::zero(); SUMS];
                if !self.are_first {
                    sums[0] = V::load_masked(energies, mask);
                }
                for part in [0, V::WIDTH] {
                    let channels = self.channels.saturating_sub(part).min(V::WIDTH);
                    if channels == 0 {
                        break;
                    }
                    if n == V::WIDTH && channels == V::WIDTH {
                        self.square::<V, true>(p, part, (n, channels), &mut sums);
                    } else {
                        self.square::<V, false>(p, part, (n, channels), &mut sums);
                    }
                }
                sums[0].add(sums[1]).add(sums[2].add(sums[3])).store_masked(energies, mask);
            }
        }
    }

    /// Packs up to a register of pixels of up to a register of channels. `WHOLE`: of both there are whole registers,
    /// and nothing has to be checked.
    #[inline(always)]
    unsafe fn square<V: Vector<T = T>, const WHOLE: bool>(
        &self,
        p: usize,
        part: usize,
        (n, channels): (usize, usize),
        sums: &mut [V; SUMS],
    ) {
        // SAFETY: as above.
        unsafe {
            let mut v = [V::zero(); 16];
            let mask = V::first(n);
            let (from, scales) = (self.from.wrapping_add(part * self.channel + p), self.scales.add(part));
            for (c, v) in v.iter_mut().enumerate().take(V::WIDTH) {
                if !WHOLE && c >= channels {
                    break;
                }
                let from = from.wrapping_add(c * self.channel);
                *v = if WHOLE || n == V::WIDTH { V::load(from) } else { V::load_masked(from, mask) };
                let scaled = v.mul(V::all(*scales.add(c)));
                sums[c % SUMS] = scaled.mul_add(scaled, sums[c % SUMS]);
            }
            V::transpose(&mut v);
            for (i, v) in v.iter().enumerate().take(V::WIDTH) {
                if WHOLE || i < n {
                    v.store(self.to.add((p + i) * 2 * V::WIDTH + part));
                }
            }
        }
    }
}

/// Finds the range of the energies of some pixels.
pub(in crate::kernels) struct EnergyPlane<T> {
    /// The energies.
    pub(super) p: *const T,
    /// The number of pixels.
    pub(super) pixels: usize,
    /// The distances of rows and of columns that are neighbours, for the least sum of four pixels.
    pub(super) apart: Option<(usize, usize)>,
}

/// The least and the largest energy of some pixels, and a sum that is finite if all are.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct EnergyRange<T> {
    /// The least energy.
    pub(super) least: T,
    /// The largest energy.
    pub(super) most: T,
    /// A sum that is finite if all energies are.
    pub(super) sum: T,
    /// The least sum of four pixels, or zero.
    pub(super) four: T,
}

impl<T: Float> EnergyPlane<T> {
    /// Finds the range.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) -> EnergyRange<T> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.pixels < V::WIDTH {
                return EnergyRange::of(std::slice::from_raw_parts(self.p, self.pixels));
            }
            let (mut least, mut most, mut sum) = (V::all(T::INFINITY), V::zero(), V::zero());
            for first in (0..self.pixels).step_by(V::WIDTH) {
                // The last pixels are looked at with some of those before, a second time.
                let v = V::load(self.p.add(first.min(self.pixels - V::WIDTH)));
                least = least.where_larger(v, v, least);
                most = v.where_larger(most, v, most);
                sum = sum.add(v);
            }
            let mut lanes = [[T::ZERO; 16]; 3];
            least.store(lanes[0].as_mut_ptr());
            most.store(lanes[1].as_mut_ptr());
            sum.store(lanes[2].as_mut_ptr());
            let [least, most, sum] = lanes.map(|v| EnergyRange::of(&v[..V::WIDTH]));
            let four = self.apart.map_or(T::ZERO, |apart| self.least_four::<V>(apart));
            EnergyRange { least: least.least, most: most.most, sum: sum.sum, four }
        }
    }

    /// The least sum of two neighbours in a row and of the two below them. Sums across two rows that are no neighbours
    /// count, too.
    #[inline(always)]
    unsafe fn least_four<V: Vector<T = T>>(&self, (row, column): (usize, usize)) -> T {
        let n = self.pixels.saturating_sub(row + column);
        if n < V::WIDTH {
            return T::ZERO;
        }
        // SAFETY: as above.
        unsafe {
            let mut least = V::all(T::INFINITY);
            for first in (0..n).step_by(V::WIDTH) {
                let p = self.p.add(first.min(n - V::WIDTH));
                let above = V::load(p).add(V::load(p.add(column)));
                let four = above.add(V::load(p.add(row)).add(V::load(p.add(row + column))));
                least = least.where_larger(four, four, least);
            }
            let mut lanes = [T::ZERO; 16];
            least.store(lanes.as_mut_ptr());
            EnergyRange::of(&lanes[..V::WIDTH]).least
        }
    }
}

impl<T: Float> PixelEnergies<T> {
    /// Adds them up.
    ///
    /// # Safety
    /// As [`EnergyPlane::run`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let step = TOGETHER * V::WIDTH;
        // SAFETY: the caller's promise; masks keep within the pixels.
        unsafe {
            if self.pixels < step {
                return self.run_few::<V>();
            }
            for first in (0..self.pixels).step_by(step) {
                // The last pixels are done with some of those before, a second time.
                let first = first.min(self.pixels - step);
                let mut sums = [V::zero(); TOGETHER];
                for c in 0..self.channels {
                    let (from, scale) =
                        (self.from.add(c * self.channel + first), V::all(*self.scales.add(c)));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let v = V::load(from.add(i * V::WIDTH)).mul(scale);
                        *sum = v.mul_add(v, *sum);
                    }
                }
                for (i, v) in sums.into_iter().enumerate() {
                    v.store(self.to.add(first + i * V::WIDTH));
                }
            }
        }
    }

    /// Sums the energies of less than a group of registers of pixels.
    #[inline(always)]
    unsafe fn run_few<V: Vector<T = T>>(&self) {
        // SAFETY: as above.
        unsafe {
            for first in (0..self.pixels).step_by(V::WIDTH) {
                let (mut sum, mask) = (V::zero(), V::first(V::WIDTH.min(self.pixels - first)));
                for c in 0..self.channels {
                    let v = V::load_masked(self.from.add(c * self.channel + first), mask);
                    let v = v.mul(V::all(*self.scales.add(c)));
                    sum = v.mul_add(v, sum);
                }
                sum.store_masked(self.to.add(first), mask);
            }
        }
    }
}

impl<T: Float> EnergyRange<T> {
    /// The range and the sum of some energies. `four` is zero.
    fn of(energies: &[T]) -> Self {
        let none = Self { least: T::INFINITY, most: T::ZERO, sum: T::ZERO, four: T::ZERO };
        energies.iter().fold(none, |all, v| Self {
            least: least(all.least, *v),
            most: if *v > all.most { *v } else { all.most },
            sum: all.sum + *v,
            four: T::ZERO,
        })
    }

    /// True if all energies are finite and not zero, and the largest is at most `ratio` times the least.
    pub(super) fn are_within(&self, ratio: f64) -> bool {
        self.sum < T::INFINITY && self.least > T::ZERO && self.most <= T::all(ratio) * self.least
    }
}

/// The lesser one; `a` where `b` is NaN.
pub(super) fn least<T: Float>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// Computes the energies that `order` describes.
pub(super) fn energies<T: Float>(order: &PixelEnergies<T>) {
    // SAFETY: the table was chosen for this machine; the memory is the promise of those who give an order.
    unsafe { (isa::kernels::<T>().energies)(order) }
}
