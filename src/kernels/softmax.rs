//! Normalised exponentials along one axis. Knows slices; knows no shapes, graphs or Python.
//!
//! Sums run in float64 and in an order that the shape alone decides. Lines are taken in blocks that stay in the cache.

mod lines;

pub use lines::{Each, LineBlock, SoftmaxLines};

use lines::WIDTH;

use super::broadcast::sum_of;
use super::map::{LaneBuffer, TILE};
use super::scratch::SavedMemory;
use super::sixteen_bits::{StoredElements, is_narrow};
use super::threads::Shared;
use super::{Float, Movable, Number, Stored};

/// `y = exp(x) / sum(exp(x))` along each line.
pub fn softmax<E: Stored>(lines: SoftmaxLines, x: &[E], y: &mut [E]) {
    assert!(x.len() == lines.count() * lines.n && y.len() == x.len());
    if is_narrow::<E>() {
        softmax_of::<_, true>(lines, StoredElements::of(x), StoredElements::of_mut(y));
    } else {
        softmax_of::<_, false>(lines, StoredElements::of(x), StoredElements::of_mut(y));
    }
}

/// As [`softmax`], for all elements of the lines.
fn softmax_of<T: Float, const NARROW: bool>(
    lines: SoftmaxLines,
    x: StoredElements<T, NARROW>,
    y: StoredElements<T, NARROW>,
) {
    lines.blocks_of(
        [x],
        Some(y),
        false,
        #[inline(always)]
        // SAFETY: elements of the block are elements of both, and no other block has them.
        move |block, [x], y| unsafe {
            let max = block.max(x);
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write(x.add(i).read() - max[j]),
            );
            block.all(
                #[inline(always)]
                |i| y.add(i).write(y.add(i).read().exp()),
            );
            let sums = block.sums_of(y);
            let mut scale = [T::ZERO; WIDTH];
            block.lines(|j| scale[j] = T::of(1.0 / sums[j]));
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write(y.add(i).read() * scale[j]),
            );
        },
    );
}

/// The sums of `exp(x - max)` of lines that are neighbours as wholes: a tile at a time, which has one loop for all
/// exponentials.
///
/// # Safety
/// `x` must be all lines.
#[inline(always)]
unsafe fn exp_sums<T: Float>(block: LineBlock, x: *const T, max: &Each<T>) -> Each<f64> {
    let mut buffer = LaneBuffer::<T>::EMPTY;
    let buffer = buffer.0.as_mut_ptr().cast::<T>();
    let mut sums = [0.0; WIDTH];
    let mut start = 0;
    // Several lines are no longer than a tile together, and a longer one is alone.
    while start < block.n {
        let n = TILE.min(block.n - start);
        let first = block.first + start;
        // SAFETY: the caller guarantees that the tile is within the lines, and the buffer is large enough. Same below.
        unsafe {
            for (j, max) in max[..block.width].iter().enumerate() {
                for i in j * n..(j + 1) * n {
                    buffer.add(i).write(x.add(first + i).read() - *max);
                }
            }
            for i in 0..block.width * n {
                buffer.add(i).write(buffer.add(i).read().exp());
            }
        }
        for (j, sum) in sums[..block.width].iter_mut().enumerate() {
            // SAFETY: as above.
            *sum += unsafe { sum_of(buffer.add(j * n), n) };
        }
        start += n;
    }
    sums
}

/// The largest element of each line of a block, and the logarithm of the sum of `exp(x - max)`.
///
/// # Safety
/// `x` must be all lines.
#[inline(always)]
unsafe fn log_sums_of<T: Float>(block: LineBlock, x: *const T) -> (Each<T>, Each<T>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let max = block.max(x);
        let sums = if block.step == 1 {
            exp_sums(block, x, &max)
        } else {
            block.sums(
                #[inline(always)]
                |i, j| (x.add(i).read() - max[j]).exp(),
            )
        };
        let mut logs = [T::ZERO; WIDTH];
        block.lines(
            #[inline(always)]
            |j| logs[j] = T::of(Number::ln(sums[j])),
        );
        (max, logs)
    }
}

/// The largest element of each line, and the logarithm of the sum of `exp(x - max)`: what is left in `all`.
pub fn log_sums<E: Stored>(lines: SoftmaxLines, x: &[E], all: &mut SavedMemory<(E::Wide, E::Wide)>) {
    assert_eq!(x.len(), lines.count() * lines.n);
    all.resize(lines.count(), (E::Wide::ZERO, E::Wide::ZERO));
    let all = Shared::new(all.as_mut_ptr());
    if is_narrow::<E>() {
        all_log_sums::<_, true>(lines, StoredElements::of(x), all);
    } else {
        all_log_sums::<_, false>(lines, StoredElements::of(x), all);
    }
}

/// As [`log_sums`], for all elements of the lines.
fn all_log_sums<T: Float, const NARROW: bool>(
    lines: SoftmaxLines,
    x: StoredElements<T, NARROW>,
    to: Shared<(T, T)>,
) {
    lines.blocks_of(
        [x],
        None,
        false,
        #[inline(always)]
        // SAFETY: elements of the block are elements of `x`, and each line is in one block.
        move |block, [x], _| unsafe {
            let (max, logs) = log_sums_of(block, x);
            block.lines(|j| to.get().add(block.line + j).write((max[j], logs[j])));
        },
    );
}

/// `y = x - log(sum(exp(x)))` along each line.
pub fn log_softmax<E: Stored>(lines: SoftmaxLines, x: &[E], y: &mut [E]) {
    assert!(x.len() == lines.count() * lines.n && y.len() == x.len());
    if is_narrow::<E>() {
        log_softmax_of::<_, true>(lines, StoredElements::of(x), StoredElements::of_mut(y));
    } else {
        log_softmax_of::<_, false>(lines, StoredElements::of(x), StoredElements::of_mut(y));
    }
}

/// As [`log_softmax`], for all elements of the lines.
fn log_softmax_of<T: Float, const NARROW: bool>(
    lines: SoftmaxLines,
    x: StoredElements<T, NARROW>,
    y: StoredElements<T, NARROW>,
) {
    lines.blocks_of(
        [x],
        Some(y),
        false,
        #[inline(always)]
        // SAFETY: elements of the block are elements of both, and no other block has them.
        move |block, [x], y| unsafe {
            let (max, logs) = log_sums_of(block, x);
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write((x.add(i).read() - max[j]) - logs[j]),
            );
        },
    );
}

/// Writes `f(elements of x, sum of g(elements of x) along their line)` to each element of `y`, or adds it. Both must be
/// `#[inline(always)]`.
#[inline(always)]
pub fn put_by_sums<E: Stored, const N: usize>(
    lines: SoftmaxLines,
    y: &mut [E],
    accumulate: bool,
    x: [&[E]; N],
    g: impl Fn([E::Wide; N]) -> E::Wide + Sync + Copy,
    f: impl Fn([E::Wide; N], E::Wide) -> E::Wide + Sync + Copy,
) {
    assert_eq!(y.len(), lines.count() * lines.n);
    assert!(x.iter().all(|x| x.len() == y.len()), "arrays of different lengths");
    if is_narrow::<E>() {
        let (y, x) = (StoredElements::<_, true>::of_mut(y), x.map(StoredElements::of));
        put_all_by_sums(lines, y, accumulate, x, g, f);
    } else {
        let (y, x) = (StoredElements::<_, false>::of_mut(y), x.map(StoredElements::of));
        put_all_by_sums(lines, y, accumulate, x, g, f);
    }
}

/// As [`put_by_sums`], for all elements of the lines.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops vectorize
fn put_all_by_sums<T: Float, const N: usize, const NARROW: bool>(
    lines: SoftmaxLines,
    y: StoredElements<T, NARROW>,
    accumulate: bool,
    x: [StoredElements<T, NARROW>; N],
    g: impl Fn([T; N]) -> T + Sync + Copy,
    f: impl Fn([T; N], T) -> T + Sync + Copy,
) {
    lines.blocks_of(
        x,
        Some(y),
        accumulate,
        #[inline(always)]
        move |block, x, y| {
            let at = move |i: usize| {
                let mut all = [T::ZERO; N];
                for k in 0..N {
                    // SAFETY: elements of the block are elements of each array.
                    all[k] = unsafe { x[k].add(i).read() };
                }
                all
            };
            if block.step == 1 && block.width * block.n <= TILE {
                return put_short(
                    block,
                    #[inline(always)]
                    |i| g(at(i)),
                    #[inline(always)]
                    // SAFETY: elements of the block are elements of `y`, and no other block has them. So below.
                    |i, sum| unsafe { write_or_add(y.add(i), f(at(i), sum), accumulate) },
                );
            }
            let sums = block.sums(
                #[inline(always)]
                |i, _| g(at(i)),
            );
            let mut rounded = [T::ZERO; WIDTH];
            block.lines(|j| rounded[j] = T::of(sums[j]));
            block.each(
                #[inline(always)]
                // SAFETY: as above.
                |i, j| unsafe { write_or_add(y.add(i), f(at(i), rounded[j]), accumulate) },
            );
        },
    );
}

/// Writes a value, or adds it if `accumulate`.
#[inline(always)]
unsafe fn write_or_add<T: Float>(y: *mut T, v: T, accumulate: bool) {
    // SAFETY: the caller's element.
    unsafe { y.write(if accumulate { y.read() + v } else { v }) };
}

/// [`put_by_sums`] for short lines that are neighbours as wholes, in one run.
#[inline(always)]
fn put_short<T: Float>(block: LineBlock, g: impl Fn(usize) -> T, put: impl Fn(usize, T)) {
    let (n, all) = (block.n, block.width * block.n);
    let mut buffer = LaneBuffer::<T>::EMPTY;
    let buffer = buffer.0.as_mut_ptr().cast::<T>();
    // SAFETY: the lines are no longer than a tile together.
    unsafe {
        for i in 0..all {
            buffer.add(i).write(g(block.first + i));
        }
        for j in 0..block.width {
            let sum = T::of(sum_of(buffer.add(j * n), n));
            for i in j * n..(j + 1) * n {
                buffer.add(i).write(sum);
            }
        }
        for i in 0..all {
            put(block.first + i, buffer.add(i).read());
        }
    }
}

/// Writes or adds `f(x, a, b)` to each element of `y`, with the values of `a` and `b` for its line. `f` must be
/// `#[inline(always)]`.
#[inline(always)]
pub fn put<T: Float, A: Copy + Sync, B: Copy + Sync>(
    lines: SoftmaxLines,
    y: &mut [T],
    accumulate: bool,
    x: &[T],
    (a, b): (&[A], &[B]),
    f: impl Fn(T, A, B) -> T + Sync + Copy,
) {
    assert_eq!(y.len(), lines.count() * lines.n);
    assert!(x.len() == y.len() && [a.len(), b.len()] == [lines.count(); 2], "arrays of different lengths");
    let y = Shared::new(y.as_mut_ptr());
    lines.blocks(
        #[inline(always)]
        move |block| {
            block.each(
                #[inline(always)]
                // SAFETY: elements of the block are elements of `x` and `y`, no other block has them, and its lines
                // are lines of `a` and `b`.
                |i, j| unsafe {
                    let (x, line) = (*x.get_unchecked(i), block.line + j);
                    let v = f(x, *a.get_unchecked(line), *b.get_unchecked(line));
                    write_or_add(y.get().add(i), v, accumulate);
                },
            );
        },
    );
}
