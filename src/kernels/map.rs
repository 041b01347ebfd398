//! Elementwise loops over raw memory: an output may be the memory of an input.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::Float;
use super::simd::vectorised;
use super::threads::{self, Shared};

/// Elements of one piece of work: handing over less costs more than it saves.
pub const GRAIN: usize = 1 << 14;
/// Elements of what is kept in the innermost cache between two loops.
pub(super) const TILE: usize = 512;

/// Memory of a function's own that starts with a cache line: what a register has written there is read by the next one in a few
/// cycles, and in three times as many where it lies across two lines.
#[repr(align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// Memory for a tile.
pub(super) type LaneBuffer<T> = Aligned<[MaybeUninit<T>; TILE]>;

impl<T> LaneBuffer<T> {
    /// With nothing in it.
    pub(super) const EMPTY: Self = Self([const { MaybeUninit::uninit() }; TILE]);
}

/// Bytes that a thread copies at a time.
const COPY: usize = 1 << 18;

/// Copies `n` bytes, on several threads if they are many.
///
/// # Safety
/// Both must hold as many; they may overlap.
pub unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    if from.addr().abs_diff(to.addr()) < n {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy(from, to, n) };
    }
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    threads::ranges(n, COPY, |range| {
        // SAFETY: the range lies within both, which lie apart.
        unsafe { from.get().add(range.start).copy_to_nonoverlapping(to.get().add(range.start), range.len()) };
    });
}

/// Adds `n` elements to others, which may be the same.
///
/// # Safety
/// Both must hold as many.
pub unsafe fn add<T: Float>(from: *const T, to: *mut T, n: usize) {
    let (from, to) = (Shared::read_only(from), Shared::new(to));
    threads::ranges(n, GRAIN, |range| {
        for i in range {
            // SAFETY: `i < n`, and comes once.
            unsafe { to.get().add(i).write(*to.get().add(i) + *from.get().add(i)) };
        }
    });
}

/// Whether angles are all small: below [`Float::SMALL_ANGLE`].
pub fn are_small<T: Float>(x: &[Cell<T>]) -> bool {
    vectorised(
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

/// Writes `f(i)` at each `i`, or adds it to what is there.
#[inline(always)]
pub fn put<T: Float>(y: &mut [T], accumulate: bool, f: impl Fn(usize) -> T + Sync + Copy) {
    let (n, y) = (y.len(), Shared::new(y.as_mut_ptr()));
    let write = move |range: Range<usize>, to: *mut T| {
        vectorised(
            #[inline(always)]
            move || {
                for i in range.clone() {
                    // SAFETY: the caller has as much room as the range is long.
                    unsafe { to.add(i - range.start).write(f(i)) };
                }
            },
        );
    };
    threads::ranges(n, GRAIN, |range| {
        // SAFETY: the range lies within `y`.
        unsafe { write_or_add(y.get(), range, accumulate, &write) };
    });
}

/// Element `i` of each array.
///
/// # Safety
/// Each must have it.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops become loops over registers
pub(super) unsafe fn elements<T: Float, const N: usize>(of: [&[T]; N], i: usize) -> [T; N] {
    let mut all = [T::ZERO; N];
    for k in 0..N {
        // SAFETY: the caller's promise.
        all[k] = unsafe { *of[k].get_unchecked(i) };
    }
    all
}

/// Writes `f` of the elements of `x` at each place, or adds it to what is there. It must be `#[inline(always)]`.
#[inline(always)]
pub fn put_of<T: Float, const N: usize>(
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
        // SAFETY: the index is one of `y`, and all are as long.
        move |i| f(unsafe { elements(x, i) }),
    );
}

/// Writes `f(i)` at each `i`, whatever it is.
#[inline(always)]
pub fn fill<V: Copy + Send + Sync>(y: &mut [V], f: impl Fn(usize) -> V + Sync) {
    let (n, y) = (y.len(), Shared::new(y.as_mut_ptr()));
    threads::ranges(n, GRAIN, |range| {
        // SAFETY: the range lies within `y`.
        range.for_each(|i| unsafe { y.get().add(i).write(f(i)) });
    });
}

/// Makes `f(y, x)` of each element of `y` and that of `x`.
#[inline(always)]
pub fn update<T: Float>(y: &mut [T], x: &[T], f: impl Fn(T, T) -> T + Sync) {
    assert_eq!(y.len(), x.len());
    let y = Shared::new(y.as_mut_ptr());
    threads::ranges(x.len(), GRAIN, |range| {
        // SAFETY: the range lies within both, and comes once.
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
        y.iter_mut().for_each(|y| *y = f(*y));
    });
}

/// Has `write` fill a range of `y`, or of memory that is then added to it.
///
/// # Safety
/// The range must lie within `y`, and `write` must write as many elements as the range that it is given has.
pub(super) unsafe fn write_or_add<T: Float>(
    y: *mut T,
    range: Range<usize>,
    accumulate: bool,
    write: &dyn Fn(Range<usize>, *mut T),
) {
    if !accumulate {
        // SAFETY: the caller's promise.
        return write(range.clone(), unsafe { y.add(range.start) });
    }
    let mut room = LaneBuffer::<T>::EMPTY;
    for start in range.clone().step_by(TILE) {
        let n = TILE.min(range.end - start);
        let room = room.0.as_mut_ptr().cast::<T>();
        write(start..start + n, room);
        vectorised(
            #[inline(always)]
            move || {
                for i in 0..n {
                    // SAFETY: `write` has filled the room, and the tile lies within `y`.
                    unsafe {
                        let y = y.add(start + i);
                        y.write(y.read() + room.add(i).read());
                    }
                }
            },
        );
    }
}
