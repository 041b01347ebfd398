//! Elementwise loops over raw memory. An output may alias an input.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::simd::{vectorised, vectorised_for};
use super::threads::{self, Shared};
use super::{Float, Movable};

/// Elements of one task. Smaller tasks cost more to hand over than they save.
pub const GRAIN: usize = 1 << 14;
/// Elements of a tile, which stays in the first-level cache between two loops.
pub(super) const TILE: usize = 512;

/// A local buffer aligned to a cache line. Store-to-load forwarding is slow for registers that cross a cache line.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// A buffer for a tile.
pub(super) type LaneBuffer<T> = Aligned<[MaybeUninit<T>; TILE]>;

impl<T> LaneBuffer<T> {
    /// An uninitialized tile.
    pub(super) const EMPTY: Self = Self([const { MaybeUninit::uninit() }; TILE]);
}

/// True if all numbers are finite.
pub(crate) fn all_finite<T: Float>(x: &[T]) -> bool {
    vectorised(
        #[inline(always)]
        move || x.iter().fold(true, |all, v| all & (v.abs() < T::INFINITY)),
    )
}

/// Bytes that a thread copies at a time.
const COPY: usize = 1 << 18;

/// Copies `n` bytes, on several threads if `n` is large.
///
/// # Safety
/// Both pointers must be valid for `n` bytes. They may overlap.
pub unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    if from.addr().abs_diff(to.addr()) < n {
        // SAFETY: guaranteed by the caller.
        return unsafe { std::ptr::copy(from, to, n) };
    }
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    threads::ranges(n, COPY, |range| {
        // SAFETY: the range is within both blocks, which do not overlap.
        unsafe { from.get().add(range.start).copy_to_nonoverlapping(to.get().add(range.start), range.len()) };
    });
}

/// Adds `n` elements to others, which may be the same.
///
/// # Safety
/// Both pointers must be valid for `n` elements.
pub unsafe fn add<T: Float>(from: *const T, to: *mut T, n: usize) {
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    threads::ranges(n, GRAIN, |range| {
        for i in range {
            // SAFETY: `i < n`, and each `i` is used once.
            unsafe { to.get().add(i).write(*to.get().add(i) + *from.get().add(i)) };
        }
    });
}

/// True if all angles are below [`Float::SMALL_ANGLE`].
pub fn are_small<T: Float>(x: &[Cell<T>]) -> bool {
    vectorised_for::<T, _>(
        #[inline(always)]
        move || {
            let mut all = true;
            for x in x {
                all &= x.get().abs() < T::SMALL_ANGLE;
            }
            all
        },
    )
}

/// Writes or adds `f(i)` to each `y[i]`.
#[inline(always)]
pub fn put<T: Movable>(y: &mut [T], accumulate: bool, f: impl Fn(usize) -> T + Sync + Copy) {
    let (n, y) = (y.len(), Shared::new(y.as_mut_ptr()));
    let write = move |range: Range<usize>, to: *mut T| {
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                for i in range.clone() {
                    // SAFETY: the caller's buffer is as long as the range.
                    unsafe { to.add(i - range.start).write(f(i)) };
                }
            },
        );
    };
    threads::ranges(n, GRAIN, |range| {
        // SAFETY: the range is within `y`.
        unsafe { write_or_add(y.get(), range, accumulate, &write) };
    });
}

/// Element `i` of each array.
///
/// # Safety
/// `i` must be in bounds of each array.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops vectorize
pub(super) unsafe fn elements<T: Movable, const N: usize>(of: [&[T]; N], i: usize) -> [T; N] {
    let mut all = [T::ZERO; N];
    for k in 0..N {
        // SAFETY: guaranteed by the caller.
        all[k] = unsafe { *of[k].get_unchecked(i) };
    }
    all
}

/// Writes or adds `f` of the elements of `x` at each index. `f` must be `#[inline(always)]`.
#[inline(always)]
pub fn put_of<T: Movable, const N: usize>(
    y: &mut [T],
    accumulate: bool,
    x: [&[T]; N],
    f: impl Fn([T; N]) -> T + Sync + Copy,
) {
    assert!(x.iter().all(|x| x.len() == y.len()), "arrays of different lengths");
    put(
        y,
        accumulate,
        #[inline(always)]
        // SAFETY: the index is within `y`, and all arrays have its length.
        move |i| f(unsafe { elements(x, i) }),
    );
}

/// Writes `f(i)` to each `y[i]`, for any type.
#[inline(always)]
pub fn fill<V: Copy + Send + Sync>(y: &mut [V], f: impl Fn(usize) -> V + Sync) {
    let (n, y) = (y.len(), Shared::new(y.as_mut_ptr()));
    threads::ranges(n, GRAIN, |range| {
        // SAFETY: the range is within `y`.
        range.for_each(|i| unsafe { y.get().add(i).write(f(i)) });
    });
}

/// Replaces each element of `y` by `f(y, x)`.
#[inline(always)]
pub fn update<T: Float>(y: &mut [T], x: &[T], f: impl Fn(T, T) -> T + Sync) {
    assert_eq!(y.len(), x.len());
    let y = Shared::new(y.as_mut_ptr());
    threads::ranges(x.len(), GRAIN, |range| {
        // SAFETY: the range is within both, and is used once.
        let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(range.start), range.len()) };
        y.iter_mut().zip(&x[range]).for_each(|(y, x)| *y = f(*y, *x));
    });
}

/// Makes `f(y)` of each element of `y`.
#[inline(always)]
pub fn change<T: Float>(y: &mut [T], f: impl Fn(T) -> T + Sync) {
    let (n, y) = (y.len(), Shared::new(y.as_mut_ptr()));
    threads::ranges(n, GRAIN, |range| {
        // SAFETY: the range lies within `y`, and comes once.
        let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(range.start), range.len()) };
        for y in y {
            *y = f(*y);
        }
    });
}

/// Has `write` fill a range of `y`, or of memory that is then added to it.
///
/// # Safety
/// The range must be within `y`, and `write` must write every element of the range it gets.
pub(super) unsafe fn write_or_add<T: Movable>(
    y: *mut T,
    range: Range<usize>,
    accumulate: bool,
    write: &dyn Fn(Range<usize>, *mut T),
) {
    if !accumulate {
        // SAFETY: guaranteed by the caller.
        return write(range.clone(), unsafe { y.add(range.start) });
    }
    let mut buffer = LaneBuffer::<T>::EMPTY;
    for start in range.clone().step_by(TILE) {
        let n = TILE.min(range.end - start);
        let buffer = buffer.0.as_mut_ptr().cast::<T>();
        write(start..start + n, buffer);
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                for i in 0..n {
                    // SAFETY: `write` has filled the buffer, and the tile is within `y`.
                    unsafe {
                        let y = y.add(start + i);
                        y.write(y.read().plus(buffer.add(i).read()));
                    }
                }
            },
        );
    }
}
