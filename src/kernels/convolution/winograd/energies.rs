//! The energies of pixels: sums of squares over channels, and how far they lie apart.

use crate::kernels::Float;
use crate::kernels::convolution::isa;
use crate::kernels::simd::Vector;

/// An order to add up `(scale x)^2` over channels for each of some pixels that are neighbours.
pub(in crate::kernels) struct PixelEnergies<T> {
    pub(super) from: *const T,
    /// The distance of channels.
    pub(super) channel: usize,
    pub(super) channels: usize,
    /// A scale for each channel.
    pub(super) scales: *const T,
    pub(super) pixels: usize,
    pub(super) to: *mut T,
    /// The length of rows, where the least sum of four pixels is asked for.
    pub(super) width: Option<usize>,
}

/// Registers of sums that are added up together.
pub(super) const TOGETHER: usize = 4;

/// The least and the largest energy of some pixels, and a sum that is finite if all are.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct EnergyRange<T> {
    pub(super) least: T,
    pub(super) most: T,
    pub(super) sum: T,
    /// The least sum of four pixels, or zero.
    pub(super) four: T,
}

impl<T: Float> PixelEnergies<T> {
    /// Adds them up.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) -> EnergyRange<T> {
        let step = TOGETHER * V::WIDTH;
        // SAFETY: the caller's promise; masks keep within the pixels.
        unsafe {
            if self.pixels < step {
                return self.run_few::<V>();
            }
            let (mut least, mut most, mut sum) = (V::all(T::INFINITY), V::zero(), V::zero());
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
                    least = least.where_larger(v, v, least);
                    most = v.where_larger(most, v, most);
                    sum = sum.add(v);
                }
            }
            let mut lanes = [[T::ZERO; 16]; 3];
            least.store(lanes[0].as_mut_ptr());
            most.store(lanes[1].as_mut_ptr());
            sum.store(lanes[2].as_mut_ptr());
            let [least, most, sum] = lanes.map(|v| EnergyRange::of(&v[..V::WIDTH]));
            let four = self.width.map_or(T::ZERO, |width| self.least_four::<V>(width));
            EnergyRange { least: least.least, most: most.most, sum: sum.sum, four }
        }
    }

    /// The least sum of two pixels and of the two below them. Those of two rows that are no neighbours count, too.
    #[inline(always)]
    unsafe fn least_four<V: Vector<T = T>>(&self, width: usize) -> T {
        let n = self.pixels.saturating_sub(width + 1);
        if n < V::WIDTH {
            return T::ZERO;
        }
        // SAFETY: as above.
        unsafe {
            let mut least = V::all(T::INFINITY);
            for first in (0..n).step_by(V::WIDTH) {
                let p = self.to.add(first.min(n - V::WIDTH));
                let above = V::load(p).add(V::load(p.add(1)));
                let four = above.add(V::load(p.add(width)).add(V::load(p.add(width + 1))));
                least = least.where_larger(four, four, least);
            }
            let mut lanes = [T::ZERO; 16];
            least.store(lanes.as_mut_ptr());
            EnergyRange::of(&lanes[..V::WIDTH]).least
        }
    }

    #[inline(always)]
    unsafe fn run_few<V: Vector<T = T>>(&self) -> EnergyRange<T> {
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
            EnergyRange::of(std::slice::from_raw_parts(self.to, self.pixels))
        }
    }
}

impl<T: Float> EnergyRange<T> {
    fn of(energies: &[T]) -> Self {
        let none = Self { least: T::INFINITY, most: T::ZERO, sum: T::ZERO, four: T::ZERO };
        energies.iter().fold(none, |all, v| Self {
            least: least(all.least, *v),
            most: if *v > all.most { *v } else { all.most },
            sum: all.sum + *v,
            four: T::ZERO,
        })
    }

    /// True if there are no zeros among the energies, all are finite, and the largest is at most `ratio` times the
    /// least.
    pub(super) fn are_within(&self, ratio: f64) -> bool {
        self.sum < T::INFINITY && self.least > T::ZERO && self.most <= T::all(ratio) * self.least
    }
}

/// The lesser one; `a` where `b` is NaN.
pub(super) fn least<T: Float>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// Carries out an order.
pub(super) fn energies<T: Float>(order: &PixelEnergies<T>) -> EnergyRange<T> {
    // SAFETY: the table was chosen for this machine; the memory is the promise of those who give an order.
    unsafe { (isa::kernels::<T>().energies)(order) }
}
