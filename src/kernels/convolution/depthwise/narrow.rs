//! Depthwise convolution of short rows, channels first. Planes of as many channels as a register has lanes are
//! transposed to pixels, so that a register holds one position of each channel.

use crate::kernels::Float;
use crate::kernels::convolution::select::is_narrow;
use crate::kernels::convolution::window::{Window, WindowAxis};
use crate::kernels::convolution::winograd::transforms::ToPlanes;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::Vector;

/// The number of positions with sums in registers at the same time.
const TOGETHER: usize = 8;

/// A tap: the pixel that the first position reads, and the index of its weight.
type PaddedTap = (usize, usize);

/// The layout of a plane with its padding, and the pixels that positions read.
pub(in super::super) struct PaddedPlane {
    /// The number of pixels, including padding.
    pub(super) pixels: usize,
    /// The pixel of each source element.
    pub(super) places: Vec<usize>,
    /// The pixel from which the taps of each position are counted.
    pub(super) starts: Vec<usize>,
    /// The taps of the kernel.
    taps: Vec<PaddedTap>,
}

/// The padding before an axis, and its length with padding.
fn padded(axis: &WindowAxis) -> (usize, usize) {
    let (least, most) = axis.offsets.iter().fold((0, 0), |(a, b), o| (a.min(*o), b.max(*o)));
    let before = least.unsigned_abs();
    let seen = (axis.positions.max(1) - 1) * axis.step + most.unsigned_abs() + 1;
    (before, before + seen.max(axis.len))
}

impl PaddedPlane {
    /// `None` for windows of more than two axes, with long rows, or that do not cover the target.
    pub(in super::super) fn new(window: &Window) -> Option<Self> {
        let (rows, columns) = match &window.axes[..] {
            [columns] => (WindowAxis::of_one(), columns),
            [rows, columns] => (rows.clone(), columns),
            _ => return None,
        };
        if !window.whole || !is_narrow(columns.positions) || window.positions() == 0 {
            return None;
        }
        let ((above, height), (left, width)) = (padded(&rows), padded(columns));
        let all = |n: [usize; 2], step: [usize; 2], first: usize| -> Vec<usize> {
            (0..n[0] * n[1]).map(|i| first + i / n[1] * step[0] * width + i % n[1] * step[1]).collect()
        };
        let place = |row: isize, column: isize| {
            (above as isize + row) as usize * width + (left as isize + column) as usize
        };
        let pairs =
            rows.offsets.iter().flat_map(|row| columns.offsets.iter().map(move |column| (*row, *column)));
        Some(Self {
            pixels: height * width,
            places: all([rows.len, columns.len], [1, 1], place(0, 0)),
            starts: all([rows.positions, columns.positions], [rows.step, columns.step], 0),
            taps: pairs.map(|(row, column)| place(row, column)).zip(window.taps.iter().copied()).collect(),
        })
    }

    /// The size of the lists that may be long.
    pub(in super::super) fn numbers(&self) -> usize {
        self.places.len() + self.starts.len()
    }

    /// The number of elements of scratch memory for registers of `lanes` numbers and kernels of `weights` elements.
    pub(super) fn capacity(&self, lanes: usize, weights: usize) -> usize {
        (self.pixels + self.starts.len() + weights) * lanes
    }
}

/// Sums over the taps of up to a register of adjacent planes.
pub(in crate::kernels) struct NarrowSum<'a, T> {
    /// The layout that all planes share.
    pub(super) plane: &'a PaddedPlane,
    /// The number of planes.
    pub(super) planes: usize,
    /// The number of elements of a kernel.
    pub(super) elements: usize,
    /// The first source plane.
    pub(super) from: *const T,
    /// The kernel of the first plane.
    pub(super) weights: *const T,
    /// The first target plane.
    pub(super) to: *mut T,
    /// Scratch memory for the pixels, whose padding must be zero, the sums and the weights.
    pub(super) memory: *mut T,
    /// The epilogue, which is applied to complete sums.
    pub(super) end: Epilogue<'a, T>,
}

impl<T: Float> NarrowSum<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let PaddedPlane { pixels, places, starts, taps } = self.plane;
        let (memory, n) = (self.memory, starts.len());
        let sums = memory.wrapping_add(pixels * V::WIDTH);
        let weights = sums.wrapping_add(n * V::WIDTH);
        // SAFETY: guaranteed by the caller, and places, starts and taps lie among the pixels.
        unsafe {
            each_column::<V>(self.from, places.len(), self.planes, places.len(), |i, v| {
                v.store(memory.add(places[i] * V::WIDTH));
            });
            each_column::<V>(self.weights, self.elements, self.planes, self.elements, |i, v| {
                v.store(weights.add(i * V::WIDTH));
            });
            let at = [memory.cast_const(), weights.cast_const()];
            if n < TOGETHER {
                (0..n).for_each(|o| some::<V, 1>(at, &starts[o..], taps, sums.add(o * V::WIDTH)));
            }
            for o in (0..n).step_by(TOGETHER).filter(|_| n >= TOGETHER) {
                let o = o.min(n - TOGETHER);
                some::<V, TOGETHER>(at, &starts[o..], taps, sums.add(o * V::WIDTH));
            }
            ToPlanes {
                from: sums,
                pixel: V::WIDTH,
                pixels: n,
                channels: self.planes,
                to: self.to,
                plane: n,
                end: self.end,
            }
            .run::<V>();
        }
    }
}

/// Computes the sums of the next `P` positions.
#[inline(always)]
unsafe fn some<V: Vector, const P: usize>(
    [pixels, weights]: [*const V::T; 2],
    starts: &[usize],
    taps: &[PaddedTap],
    to: *mut V::T,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let from: [*const V::T; P] = std::array::from_fn(|i| pixels.add(starts[i] * V::WIDTH));
        let mut sums = [V::zero(); P];
        for (tap, element) in taps {
            let weight = V::load(weights.add(element * V::WIDTH));
            for i in 0..P {
                sums[i] = V::load(from[i].add(tap * V::WIDTH)).mul_add(weight, sums[i]);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            sum.store(to.add(i * V::WIDTH));
        }
    }
}

/// Calls `put` with each of the first `k` columns of up to `V::WIDTH` rows that are `apart`. Missing rows are zero.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // counts from the compiler, so that the square stays in registers
unsafe fn each_column<V: Vector>(
    from: *const V::T,
    apart: usize,
    rows: usize,
    k: usize,
    mut put: impl FnMut(usize, V),
) {
    for first in (0..k).step_by(V::WIDTH) {
        // SAFETY: guaranteed by the caller, and the mask keeps within the rows.
        unsafe {
            let (mut v, mask) = ([V::zero(); 16], V::first(k - first));
            for i in 0..V::WIDTH {
                if i < rows {
                    v[i] = V::load_masked(from.add(i * apart + first), mask);
                }
            }
            V::transpose(&mut v);
            for i in 0..V::WIDTH {
                if first + i < k {
                    put(first + i, v[i]);
                }
            }
        }
    }
}
