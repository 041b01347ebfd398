//! Broadcast formulas of two arrays, tile by tile. Repeated elements are copied to a buffer first.

use std::cell::Cell;
use std::ops::Range;

use super::BroadcastLayout;
use crate::kernels::Movable;
use crate::kernels::map::{GRAIN, LaneBuffer, TILE, elements, write_or_add};
use crate::kernels::simd::vectorised_for;
use crate::kernels::threads::{self, Shared};

impl BroadcastLayout {
    /// `y = f(a, b)`. The formula must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The arrays must have the shapes of the broadcast. `y` may alias an array that is not broadcast.
    #[inline(always)]
    pub unsafe fn map<T: Movable>(
        &self,
        a: *const T,
        b: *const T,
        y: *mut T,
        f: impl Fn(T, T) -> T + Sync + Copy,
    ) {
        let y = Shared::new(y);
        let tile = |start: usize, a: *const T, b: *const T, n: usize| {
            vectorised_for::<T, _>(
                #[inline(always)]
                move || {
                    // SAFETY: the tile is within `y`, and `a` and `b` hold as many elements.
                    let y = unsafe { y.get().add(start) };
                    for i in 0..n {
                        // SAFETY: as above.
                        unsafe { y.add(i).write(f(a.add(i).read(), b.add(i).read())) };
                    }
                },
            );
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.tiles(a, b, &tile) };
    }

    /// `y = f(a, b)` for arrays that may alias as in [`BroadcastLayout::map`].
    #[inline(always)]
    pub fn map_cells<T: Movable>(
        &self,
        a: &[Cell<T>],
        b: &[Cell<T>],
        y: &[Cell<T>],
        f: impl Fn(T, T) -> T + Sync + Copy,
    ) {
        self.check([a.len(), b.len(), y.len()]);
        let [a, b, y] = [a, b, y].map(|of| of.as_ptr().cast_mut().cast());
        // SAFETY: all broadcast indices are within the arrays. Cells may be written while they are shared.
        unsafe { self.map(a, b, y, f) };
    }

    /// `y = f(a, b)` for arrays that do not alias.
    #[inline(always)]
    pub fn map_distinct<T: Movable>(
        &self,
        a: &[T],
        b: &[T],
        y: &mut [T],
        f: impl Fn(T, T) -> T + Sync + Copy,
    ) {
        self.check([a.len(), b.len(), y.len()]);
        // SAFETY: all broadcast indices are within the arrays.
        unsafe { self.map(a.as_ptr(), b.as_ptr(), y.as_mut_ptr(), f) };
    }

    /// Panics unless the arrays have the sizes of the broadcast.
    fn check(&self, lengths: [usize; 3]) {
        assert!(self.fits(lengths), "arrays that have not the shapes of the broadcast");
    }

    /// Writes or adds `f(a, b, others)` for each element of `y`. The others have the length of `y`. The formula must
    /// be `#[inline(always)]`.
    #[inline(always)]
    pub fn put<T: Movable, const N: usize>(
        &self,
        [a, b]: [&[T]; 2],
        others: [&[T]; N],
        y: &mut [T],
        accumulate: bool,
        f: impl Fn(T, T, [T; N]) -> T + Sync + Copy,
    ) {
        self.check([a.len(), b.len(), y.len()]);
        assert!(others.iter().all(|x| x.len() == y.len()), "arrays of different lengths");
        let y = Shared::new(y.as_mut_ptr());
        let tile = |start: usize, a: *const T, b: *const T, n: usize| {
            let write = |range: Range<usize>, to: *mut T| {
                vectorised_for::<T, _>(
                    #[inline(always)]
                    move || {
                        let first = range.start - start;
                        for i in range.clone() {
                            let k = i - start;
                            // SAFETY: the range is a part of the tile, for which `a` and `b` hold elements. The
                            // others hold elements for all of `y`. `to` has enough space.
                            unsafe {
                                let others = elements(others, i);
                                to.add(k - first).write(f(a.add(k).read(), b.add(k).read(), others));
                            }
                        }
                    },
                );
            };
            // SAFETY: the tile is within `y`.
            unsafe { write_or_add(y.get(), start..start + n, accumulate, &write) };
        };
        // SAFETY: all broadcast indices are within the arrays.
        unsafe { self.tiles(a.as_ptr(), b.as_ptr(), &tile) };
    }

    /// Writes or adds `f` of broadcast elements for each element of `y`. Several arrays may be indexed like `a`, and
    /// several like `b`. As [`BroadcastLayout::write_many`], but element by element. The formula must be
    /// `#[inline(always)]`.
    #[inline(always)]
    pub fn put_many<T: Movable, const N: usize, const M: usize>(
        &self,
        a: [&[T]; N],
        b: [&[T]; M],
        y: &mut [T],
        accumulate: bool,
        f: impl Fn([T; N], [T; M]) -> T + Sync + Copy,
    ) {
        self.check([shortest(a), shortest(b), y.len()]);
        let to = Shared::new(y.as_mut_ptr());
        self.each(
            #[inline(always)]
            // SAFETY: all broadcast indices are within the arrays, and each element of `y` is visited once.
            move |i, k, at| unsafe {
                let (to, v) = (to.get().add(at), f(elements(a, i), elements(b, k)));
                to.write(if accumulate { to.read().plus(v) } else { v });
            },
        );
    }

    /// Replaces each element `y` by `f(i, x, y)`. `x` is the element of an array with the length of `y`, and `i` is
    /// the index of the corresponding element of `a`. The formula must be `#[inline(always)]`.
    #[inline(always)]
    pub fn update<T: Movable>(&self, x: &[T], y: &mut [T], f: impl Fn(usize, T, T) -> T + Sync + Copy) {
        self.check([usize::MAX, usize::MAX, x.len().min(y.len())]);
        let to = Shared::new(y.as_mut_ptr());
        self.each(
            #[inline(always)]
            // SAFETY: broadcast indices are within the arrays, and each element of `y` is visited once.
            move |i, _, at| unsafe {
                let to = to.get().add(at);
                to.write(f(i, *x.get_unchecked(at), to.read()));
            },
        );
    }

    /// Writes or adds `f` of broadcast elements for each element of `y`. Several arrays may be indexed like `a`, and
    /// several like `b`. The formula must be `#[inline(always)]`.
    #[inline(always)]
    pub fn write_many<T: Movable, const N: usize, const M: usize>(
        &self,
        a: [&[T]; N],
        b: [&[T]; M],
        y: &mut [T],
        accumulate: bool,
        f: impl Fn([T; N], [T; M]) -> T + Sync + Copy,
    ) {
        self.check([shortest(a), shortest(b), y.len()]);
        // SAFETY: all broadcast indices are within the arrays.
        unsafe {
            self.write(
                Shared::new(y.as_mut_ptr()),
                accumulate,
                #[inline(always)]
                move |i, k, _| f(elements(a, i), elements(b, k)),
            );
        }
    }

    /// Writes or adds `f(a, b, i)`, with the indices of the corresponding elements, to each element `i` of `y`. The
    /// formula must be `#[inline(always)]`.
    ///
    /// # Safety
    /// `y` must have the shape of the broadcast.
    #[inline(always)]
    pub unsafe fn write<T: Movable>(
        &self,
        y: Shared<T>,
        accumulate: bool,
        f: impl Fn(usize, usize, usize) -> T + Sync + Copy,
    ) {
        let (by_a, by_b) = (self.last.a() != 0, self.last.b() != 0);
        self.pieces(&|rows, columns| {
            vectorised_for::<T, _>(
                #[inline(always)]
                move || {
                    // Uses a local buffer, which the compiler knows does not alias.
                    let mut buffer = LaneBuffer::<T>::EMPTY;
                    self.walk(
                        rows,
                        #[inline(always)]
                        |a, b, y0| {
                            let mut start = columns.start;
                            while start < columns.end {
                                let n = TILE.min(columns.end - start);
                                let (a, b, i) = (a + start, b + start, y0 + start);
                                match (by_a, by_b) {
                                    (false, false) => fill(
                                        &mut buffer,
                                        n,
                                        #[inline(always)]
                                        |k| f(a - start, b - start, i + k),
                                    ),
                                    (false, true) => fill(
                                        &mut buffer,
                                        n,
                                        #[inline(always)]
                                        |k| f(a - start, b + k, i + k),
                                    ),
                                    (true, false) => fill(
                                        &mut buffer,
                                        n,
                                        #[inline(always)]
                                        |k| f(a + k, b - start, i + k),
                                    ),
                                    (true, true) => fill(
                                        &mut buffer,
                                        n,
                                        #[inline(always)]
                                        |k| f(a + k, b + k, i + k),
                                    ),
                                }
                                // SAFETY: the tile was filled, and is within `y`.
                                unsafe { move_to(buffer.0.as_ptr().cast(), y.get().add(i), n, accumulate) };
                                start += n;
                            }
                        },
                    );
                },
            );
        });
    }

    /// Calls `tile(first, a, b, n)` for parts of `y`, with the corresponding elements of `a` and `b`, in place or
    /// repeated in a buffer.
    pub(crate) unsafe fn tiles<T: Movable>(
        &self,
        a: *const T,
        b: *const T,
        tile: &(dyn Fn(usize, *const T, *const T, usize) + Sync),
    ) {
        let n = self.last.n;
        let (a, b) = (Shared::read_only(a), Shared::read_only(b));
        if self.outer.is_empty() && self.last.a() == 1 && self.last.b() == 1 {
            return threads::ranges(n, GRAIN, |range| {
                // Arrays that are not read may be dangling.
                let [a, b] = [a, b].map(|of| of.get().wrapping_add(range.start));
                tile(range.start, a, b, range.len());
            });
        }
        let axes = || self.outer.iter().chain([&self.last]);
        let (a_whole, b_whole) =
            (axes().all(|axis| axis.a() == axis.y()), axes().all(|axis| axis.b() == axis.y()));
        // Short rows are combined into one tile, where they are repeated in a buffer.
        let together = (TILE / n.max(1)).max(1);
        self.pieces(&|rows, columns| {
            let mut buffer = [LaneBuffer::<T>::EMPTY; 2];
            let [buffer_a, buffer_b] = &mut buffer;
            let (buffer_a, buffer_b) =
                (buffer_a.0.as_mut_ptr().cast::<T>(), buffer_b.0.as_mut_ptr().cast::<T>());
            let mut filled = 0;
            let mut start = [0; 3];
            let last = rows.end - 1;
            let mut row = rows.start;
            self.walk(rows, |ia, ib, iy| {
                // SAFETY: all accesses are within the arrays, as the caller guarantees, and within the buffers.
                unsafe {
                    if together == 1 {
                        for c in columns.clone().step_by(TILE) {
                            let n = TILE.min(columns.end - c);
                            let a = broadcast_row(a.get().add(ia), self.last.a(), c, n, buffer_a);
                            let b = broadcast_row(b.get().add(ib), self.last.b(), c, n, buffer_b);
                            tile(iy + c, a, b, n);
                        }
                    } else {
                        if filled == 0 {
                            start = [ia, ib, iy];
                        }
                        if !a_whole {
                            copy_row(a.get().add(ia), self.last.a(), n, buffer_a.add(filled));
                        }
                        if !b_whole {
                            copy_row(b.get().add(ib), self.last.b(), n, buffer_b.add(filled));
                        }
                        filled += n;
                        if filled + n > TILE || row == last {
                            let a = if a_whole { a.get().add(start[0]).cast_const() } else { buffer_a };
                            let b = if b_whole { b.get().add(start[1]).cast_const() } else { buffer_b };
                            tile(start[2], a, b, filled);
                            filled = 0;
                        }
                    }
                }
                row += 1;
            });
        });
    }
}

/// The length of the shortest array.
fn shortest<T, const N: usize>(of: [&[T]; N]) -> usize {
    of.iter().map(|x| x.len()).min().unwrap_or(usize::MAX)
}

/// Writes `f(i)` to the first `n` lanes.
#[inline(always)]
fn fill<T: Movable>(buffer: &mut LaneBuffer<T>, n: usize, f: impl Fn(usize) -> T) {
    for (i, to) in buffer.0[..n].iter_mut().enumerate() {
        to.write(f(i));
    }
}

/// Copies or adds.
#[inline(always)]
unsafe fn move_to<T: Movable>(from: *const T, to: *mut T, n: usize, accumulate: bool) {
    // SAFETY: memory of the caller, and the first is a local buffer.
    unsafe {
        if !accumulate {
            return std::ptr::copy_nonoverlapping(from, to, n);
        }
        for i in 0..n {
            to.add(i).write(to.add(i).read().plus(from.add(i).read()));
        }
    }
}

/// `n` elements of a row from column `c` on: in place, or the single element of the row repeated in a buffer.
unsafe fn broadcast_row<T: Movable>(
    row: *const T,
    step: usize,
    c: usize,
    n: usize,
    buffer: *mut T,
) -> *const T {
    // SAFETY: the caller's row has these columns, or one element, and the buffer holds a tile.
    unsafe {
        if step != 0 {
            return row.add(c);
        }
        copy_row(row, 0, n, buffer);
    }
    buffer
}

/// Copies a row of `n` elements, or repeats one element if `step` is 0.
unsafe fn copy_row<T: Movable>(row: *const T, step: usize, n: usize, buffer: *mut T) {
    // SAFETY: the caller's row has these columns, or one element, and the buffer has the same size.
    unsafe {
        if step != 0 {
            return std::ptr::copy_nonoverlapping(row, buffer, n);
        }
        let v = row.read();
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                for i in 0..n {
                    buffer.add(i).write(v);
                }
            },
        );
    }
}
