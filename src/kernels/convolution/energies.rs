//! The energies of pixels: sums of squares over channels, and how far they lie apart.

use std::ops::Range;

use super::isa;
use super::transforms::PixelGrid;
use crate::kernels::Float;
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

    /// True if there are no zeros among the energies, all are finite, and the largest is at most `ratio` times the least.
    pub(super) fn are_within(&self, ratio: f64) -> bool {
        self.sum < T::INFINITY && self.least > T::ZERO && self.most <= T::all(ratio) * self.least
    }
}

/// The lesser one; `a` where `b` is NaN.
pub(super) fn least<T: Float>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// Computes the energies of blocks of 2 x 2 pixels of a strip, over up to two registers of channels. Each block gets a
/// register of sums; lane `l` holds the energy of channels `l`, `WIDTH + l`, and so on.
pub(in crate::kernels) struct BlockEnergies<T> {
    /// The pixels of the strip. Channels beyond `channels` are zero up to a whole register.
    pub(super) strip: PixelGrid<T>,
    pub(super) channels: usize,
    /// A scale for each channel.
    pub(super) scales: *const T,
    pub(super) blocks: Blocks,
    pub(super) sums: *mut T,
    /// True if the sums are written, false if they are added to.
    pub(super) are_first: bool,
}

/// The division of a strip of pixels into blocks of 2 x 2.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// Rows and columns of pixels.
    pub(super) size: (usize, usize),
    /// Rows and columns that the blocks at the upper and the left edge lack: 0 or 1.
    pub(super) cut: usize,
    /// Rows and columns of inner blocks. The first one is `cut` blocks from the edges.
    pub(super) inner: (usize, usize),
}

impl Blocks {
    pub(super) fn rows(&self) -> usize {
        (self.size.0 + self.cut).div_ceil(2)
    }

    pub(super) fn columns(&self) -> usize {
        (self.size.1 + self.cut).div_ceil(2)
    }

    /// The number of all blocks.
    pub(super) fn n(&self) -> usize {
        self.rows() * self.columns()
    }

    pub(super) fn n_inner(&self) -> usize {
        self.inner.0 * self.inner.1
    }

    /// True if the block in row `i` and column `j` is an inner one.
    #[inline(always)]
    pub(super) fn is_inner(&self, i: usize, j: usize) -> bool {
        i.wrapping_sub(self.cut) < self.inner.0 && j.wrapping_sub(self.cut) < self.inner.1
    }

    /// The place of a block in memory: inner blocks come first, row by row, then the others.
    #[inline(always)]
    pub(super) fn place(&self, i: usize, j: usize) -> usize {
        let ((rows, columns), across, cut) = (self.inner, self.columns(), self.cut);
        if self.is_inner(i, j) {
            return (i - cut) * columns + j - cut;
        }
        // Inner blocks that come before this one, row by row.
        let in_row = if i.wrapping_sub(cut) < rows && j >= cut { columns } else { 0 };
        let before = i.saturating_sub(cut).min(rows) * columns + in_row;
        self.n_inner() + i * across + j - before
    }

    /// The pixels of block `i` along an axis of `size` pixels.
    #[inline(always)]
    fn pixels(&self, i: usize, size: usize) -> Range<usize> {
        (2 * i).saturating_sub(self.cut)..(2 * i + 2 - self.cut).min(size)
    }
}

impl<T: Float> BlockEnergies<T> {
    /// Computes the energies.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let b = &self.blocks;
        // SAFETY: the caller's promise.
        unsafe {
            let mut scales = [V::zero(); 2];
            for (i, scale) in scales.iter_mut().enumerate() {
                let first = i * V::WIDTH;
                if first < self.channels {
                    let v = V::load_masked(self.scales.add(first), V::first(self.channels - first));
                    *scale = v.mul(v);
                }
            }
            for i in 0..b.rows() {
                let ys = b.pixels(i, b.size.0);
                for j in 0..b.columns() {
                    let (xs, to) = (b.pixels(j, b.size.1), self.sums.add(b.place(i, j) * V::WIDTH));
                    let mut sum = if self.are_first { V::zero() } else { V::load(to) };
                    for (i, scale) in scales.iter().enumerate() {
                        let first = i * V::WIDTH;
                        if first < self.channels {
                            let mut squares = V::zero();
                            for y in ys.clone() {
                                for x in xs.clone() {
                                    let v = V::load(self.strip.at(y, x).add(first));
                                    squares = v.mul_add(v, squares);
                                }
                            }
                            sum = squares.mul_add(*scale, sum);
                        }
                    }
                    sum.store(to);
                }
            }
        }
    }
}

/// Adds up the lanes of registers in memory. The sums are written to the start of the same memory.
pub(in crate::kernels) struct LaneSums<T> {
    pub(super) p: *mut T,
    /// Registers that count for the least sum. They come first.
    pub(super) inner: usize,
    /// All registers.
    pub(super) all: usize,
}

impl<T: Float> LaneSums<T> {
    /// Returns the least sum of the inner registers and the largest of all. The least is zero, and no sum is written, if
    /// there are fewer inner or other registers than lanes.
    ///
    /// # Safety
    /// As [`BlockEnergies::run`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) -> EnergyRange<T> {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut least, mut most, mut sum) = (V::all(T::INFINITY), V::zero(), V::zero());
            let others = self.all - self.inner;
            if self.inner < V::WIDTH || (others > 0 && others < V::WIDTH) {
                return EnergyRange { least: T::ZERO, most: T::ZERO, sum: T::ZERO, four: T::ZERO };
            }
            for (start, end, are_inner) in [(0, self.inner, true), (self.inner, self.all, false)] {
                for first in (start..end).step_by(V::WIDTH) {
                    // The last registers are done together with some that are done already. Those are still in memory,
                    // as sums take less of it.
                    let first = first.min(end - V::WIDTH);
                    let v = self.lanes::<V>(first);
                    v.store(self.p.add(first));
                    if are_inner {
                        least = least.where_larger(v, v, least);
                    }
                    most = v.where_larger(most, v, most);
                    sum = sum.add(v);
                }
            }
            let mut lanes = [[T::ZERO; 16]; 3];
            least.store(lanes[0].as_mut_ptr());
            most.store(lanes[1].as_mut_ptr());
            sum.store(lanes[2].as_mut_ptr());
            let [least, most, sum] = lanes.map(|v| EnergyRange::of(&v[..V::WIDTH]));
            EnergyRange { least: least.least, most: most.most, sum: sum.sum, four: T::ZERO }
        }
    }

    /// The sums of `WIDTH` registers, one in each lane: a transpose in which rows are added as soon as they are halves.
    #[inline(always)]
    unsafe fn lanes<V: Vector<T = T>>(&self, first: usize) -> V {
        // SAFETY: as above.
        unsafe {
            let mut v = [V::zero(); 16];
            for i in 0..V::WIDTH {
                v[i] = V::load(self.p.add((first + i) * V::WIDTH));
            }
            add_halves::<V, 8>(&mut v);
            add_halves::<V, 4>(&mut v);
            add_halves::<V, 2>(&mut v);
            add_halves::<V, 1>(&mut v);
            v[0]
        }
    }
}

#[inline(always)]
unsafe fn add_halves<V: Vector, const D: usize>(v: &mut [V; 16]) {
    if D >= V::WIDTH {
        return;
    }
    for i in 0..D {
        // SAFETY: the caller has the instructions.
        unsafe {
            let (a, b) = V::exchange::<D>(v[i], v[i + D]);
            v[i] = a.add(b);
        }
    }
}

/// Carries out an order.
pub(super) fn energies<T: Float>(order: &PixelEnergies<T>) -> EnergyRange<T> {
    // SAFETY: the table was chosen for this machine; the memory is the promise of those who give an order.
    unsafe { (isa::kernels::<T>().energies)(order) }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn inner_blocks_come_first_and_each_block_has_a_place() {
        for (size, cut, inner) in [
            ((6, 10), 1, (2, 4)),
            ((10, 18), 1, (4, 8)),
            ((10, 18), 1, (3, 7)),
            ((8, 12), 0, (4, 6)),
            ((8, 12), 0, (3, 5)),
        ] {
            let blocks = Blocks { size, cut, inner };
            let mut places: Vec<usize> = Vec::new();
            for (i, j) in (0..blocks.rows()).flat_map(|i| (0..blocks.columns()).map(move |j| (i, j))) {
                let place = blocks.place(i, j);
                assert_eq!(place < blocks.n_inner(), blocks.is_inner(i, j), "{size:?} {inner:?} {i} {j}");
                places.push(place);
            }
            places.sort_unstable();
            assert!(places.into_iter().eq(0..blocks.n()), "{size:?} {inner:?}");
        }
    }
}
