//! Copies between arrays of different layout: transposed axes and broadcast axes.

use super::broadcast::BroadcastLayout;
use super::index::{IndexAxis, merged, walk};
use super::map::GRAIN;
use super::simd::vectorised;
use super::threads::{self, Shared};
use crate::array::{Element, Shape};

/// Side of the square tiles of a transposition. Both sides of a tile fit the cache.
const TILE: usize = 16;
/// Longest side of a band that is one tile wide.
const BAND: usize = 512;

/// Writes `x` with permuted axes to `y`: axis `i` of `y` is axis `axes[i]` of `x`.
pub fn transpose<T: Element>(x: &[T], shape: &Shape, axes: &[usize], y: &mut [T]) {
    transpose_with(x, shape, axes, y, |y, x| *y = x);
}

/// As [`transpose`], with `put` combining an element of `y` with one of `x`.
pub fn transpose_with<T: Element>(
    x: &[T],
    shape: &Shape,
    axes: &[usize],
    y: &mut [T],
    put: impl Fn(&mut T, T) + Sync,
) {
    if y.is_empty() {
        return;
    }
    let strides = shape.strides();
    let to = axes.iter().map(|a| shape[*a]).collect::<Shape>().strides();
    let axes = axes.iter().zip(to).map(|(a, to)| IndexAxis { n: shape[*a], strides: [strides[*a], to] });
    let mut axes = merged(axes);
    // The last axis of `y` and the contiguous axis of `x` are walked in tiles, the others outside.
    let IndexAxis { n, strides: [step, _] } = axes.pop().unwrap_or(IndexAxis { n: 1, strides: [1, 1] });
    let y_memory = Shared::new(y.as_mut_ptr());
    // SAFETY: rows are within `y`, and each element belongs to one of them.
    let line = |at: usize, n: usize| unsafe { std::slice::from_raw_parts_mut(y_memory.get().add(at), n) };
    let outer: usize = axes.iter().map(|axis| axis.n).product();
    let Some(k) = axes.iter().position(|axis| axis.strides[0] == 1).filter(|_| step != 1) else {
        return threads::ranges(outer, (GRAIN / n).max(1), |rows| {
            walk(&axes, [0; 2], rows, |[x0, y0]| {
                let row = line(y0, n);
                if step == 1 {
                    row.iter_mut().zip(&x[x0..x0 + n]).for_each(|(y, x)| put(y, *x));
                } else {
                    row.iter_mut().enumerate().for_each(|(i, y)| put(y, x[x0 + i * step]));
                }
            });
        });
    };
    let IndexAxis { n: m, strides: [_, row] } = axes.remove(k);
    let outer = outer / m;
    if let (Some(few), _) | (_, Some(few)) = (Few::new(n), Few::new(m)) {
        // If lines of one side are very short, each is taken as a whole.
        let along = if Few::new(n).is_some() { m } else { n };
        let parts = along.div_ceil(BAND);
        let grain = (GRAIN / (along.min(BAND) * (n * m / along))).max(1);
        return threads::ranges(outer * parts, grain, |range| {
            for at in range {
                let (start, at) = (at % parts * BAND, at / parts);
                let some = start..along.min(start + BAND);
                walk(&axes, [0; 2], at..at + 1, |[x0, y0]| {
                    // SAFETY: the element is within `y`, and is used once.
                    let put = |i: usize, j: usize, v| unsafe {
                        put(&mut *y_memory.get().add(y0 + i * row + j), v);
                    };
                    if along == m {
                        few.columns(&x[x0 + some.start..], step, some.len(), |i, j, v| {
                            put(some.start + i, j, v);
                        });
                    } else {
                        few.rows(&x[x0 + some.start * step..], step, some.len(), |i, j, v| {
                            put(i, some.start + j, v);
                        });
                    }
                });
            }
        });
    }
    let bands = m.div_ceil(TILE);
    threads::ranges(outer * bands, (GRAIN / (TILE * n)).max(1), |range| {
        for at in range {
            let (i0, at) = (at % bands * TILE, at / bands);
            let height = TILE.min(m - i0);
            walk(&axes, [0; 2], at..at + 1, |[x0, y0]| {
                for j0 in (0..n).step_by(TILE) {
                    let from = &x[x0 + i0 + j0 * step..];
                    let write = |i: usize, tile: &[[T; TILE]]| {
                        let line = line(y0 + (i0 + i) * row + j0, tile.len());
                        line.iter_mut().zip(tile).for_each(|(y, tile)| put(y, tile[i]));
                    };
                    // The loops over a whole tile have constant lengths.
                    match [height, TILE.min(n - j0)] {
                        [TILE, TILE] => through_tile(from, step, [TILE, TILE], write),
                        size => through_tile(from, step, size, write),
                    }
                }
            });
        }
    });
}

/// Copies lines of `height` elements, `step` apart, to a tile in the cache: distant lines would evict each other. Calls
/// `write` with the number of each element of the lines, and the tile.
#[inline(always)]
fn through_tile<T: Copy>(
    x: &[T],
    step: usize,
    [height, width]: [usize; 2],
    write: impl Fn(usize, &[[T; TILE]]),
) {
    let mut tile = [[x[0]; TILE]; TILE];
    for (j, tile) in tile[..width].iter_mut().enumerate() {
        tile[..height].copy_from_slice(&x[j * step..][..height]);
    }
    (0..height).for_each(|i| write(i, &tile[..width]));
}

/// Small numbers of adjacent elements, known at compile time.
#[derive(Clone, Copy)]
enum Few {
    Two,
    Three,
    Four,
    Eight,
}

impl Few {
    /// The variant for `n`, if there is one.
    fn new(n: usize) -> Option<Self> {
        [(2, Self::Two), (3, Self::Three), (4, Self::Four), (8, Self::Eight)]
            .into_iter()
            .find_map(|(few, of)| (n == few).then_some(of))
    }

    /// Calls `put(i, j, v)` for the first `n` elements `i` of each line `j` of `x`. Lines are `step` apart, and their
    /// number is `self`.
    #[inline(always)]
    fn columns<T: Copy>(self, x: &[T], step: usize, n: usize, put: impl Fn(usize, usize, T)) {
        /// Calls `put` as above, for `N` lines.
        #[inline(always)]
        fn of<T: Copy, const N: usize>(x: &[T], step: usize, n: usize, put: impl Fn(usize, usize, T)) {
            let lines: [&[T]; N] = std::array::from_fn(|j| &x[j * step..][..n]);
            for i in 0..n {
                for (j, line) in lines.iter().enumerate() {
                    put(i, j, line[i]);
                }
            }
        }
        match self {
            Self::Two => of::<T, 2>(x, step, n, put),
            Self::Three => of::<T, 3>(x, step, n, put),
            Self::Four => of::<T, 4>(x, step, n, put),
            Self::Eight => of::<T, 8>(x, step, n, put),
        }
    }

    /// Calls `put(i, j, v)` for the first `self` elements `i` of the first `n` lines `j` of `x`. Lines are `step`
    /// apart.
    #[inline(always)]
    fn rows<T: Copy>(self, x: &[T], step: usize, n: usize, put: impl Fn(usize, usize, T)) {
        /// Calls `put` as above, for lines of `N` elements.
        #[inline(always)]
        fn of<T: Copy, const N: usize>(x: &[T], step: usize, n: usize, put: impl Fn(usize, usize, T)) {
            for (j, line) in x.chunks(step).take(n).enumerate() {
                if let Some(line) = line.first_chunk::<N>() {
                    line.iter().enumerate().for_each(|(i, v)| put(i, j, *v));
                }
            }
        }
        match self {
            Self::Two => of::<T, 2>(x, step, n, put),
            Self::Three => of::<T, 3>(x, step, n, put),
            Self::Four => of::<T, 4>(x, step, n, put),
            Self::Eight => of::<T, 8>(x, step, n, put),
        }
    }
}

/// Broadcasts `x` to `y`, of shape `to`: repeats axes of length one, and adds leading axes.
pub fn broadcast<T: Element>(x: &[T], from: &Shape, to: &Shape, y: &mut [T]) {
    let broadcast = layout(x, from, to, y);
    match broadcast.repeats() {
        Some(line) if (1..=FEW_TIMES).contains(&line[1]) => repeat(&broadcast.lines(), line, x, y),
        _ => put_many(&broadcast, x, y, |y, x| *y = x),
    }
}

/// As [`broadcast`], with `put` combining an element of `y` with one of `x`.
#[inline(always)]
pub fn broadcast_with<T: Element>(
    x: &[T],
    from: &Shape,
    to: &Shape,
    y: &mut [T],
    put: impl Fn(&mut T, T) + Sync + Copy,
) {
    put_many(&layout(x, from, to, y), x, y, put);
}

/// The broadcast of `x`, of shape `from`, to `y`, of shape `to`.
fn layout<T>(x: &[T], from: &Shape, to: &Shape, y: &[T]) -> BroadcastLayout {
    let broadcast = BroadcastLayout::new(from, to);
    assert!(x.len() == from.size() && y.len() == to.size() && broadcast.size() == y.len());
    broadcast
}

/// Calls `put` for each element of `y` with the element of `x` that it is paired with.
#[inline(always)]
fn put_many<T: Element>(
    broadcast: &BroadcastLayout,
    x: &[T],
    y: &mut [T],
    put: impl Fn(&mut T, T) + Sync + Copy,
) {
    let y = Shared::new(y.as_mut_ptr());
    broadcast.each(
        #[inline(always)]
        // SAFETY: the indices are within arrays of these shapes, and each element of `y` is used once.
        move |i, _, o| unsafe { put(&mut *y.get().add(o), *x.get_unchecked(i)) },
    );
}

/// Up to this many repetitions of an element are made in registers.
const FEW_TIMES: usize = 8;

/// Repeats each of `n` elements of `x` along each line of `y`.
fn repeat<T: Element>(lines: &BroadcastLayout, [n, times]: [usize; 2], x: &[T], y: &mut [T]) {
    // Split long lines.
    let cuts = (n * times).div_ceil(GRAIN).max(1);
    let part = n.div_ceil(cuts).max(1);
    let to = Shared::new(y.as_mut_ptr());
    threads::ranges(lines.rows() * cuts, (GRAIN / (part * times)).max(1), |range| {
        let mut i = range.start;
        lines.walk(range.start / cuts..range.end.div_ceil(cuts), |a, _, line| {
            while i < range.end {
                let start = i % cuts * part;
                let some = start.min(n)..n.min(start + part);
                // SAFETY: lines are consecutive within `y`, and each part of one is used once.
                let y = unsafe {
                    std::slice::from_raw_parts_mut(
                        to.get().add(line + some.start * times),
                        some.len() * times,
                    )
                };
                repeat_each(&x[a + some.start..a + some.end], times, y);
                i += 1;
                if i % cuts == 0 {
                    break;
                }
            }
        });
    });
}

/// Repeats each element this many times.
fn repeat_each<T: Element>(x: &[T], times: usize, y: &mut [T]) {
    /// Repeats each element `N` times.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // a constant count, so that registers are used
    fn each<T: Element, const N: usize>(x: &[T], y: &mut [T]) {
        for (x, y) in x.iter().zip(y.chunks_exact_mut(N)) {
            for i in 0..N {
                y[i] = *x;
            }
        }
    }
    vectorised(
        #[inline(always)]
        move || match times {
            2 => each::<T, 2>(x, y),
            3 => each::<T, 3>(x, y),
            4 => each::<T, 4>(x, y),
            _ => x.iter().zip(y.chunks_exact_mut(times)).for_each(|(x, y)| y.fill(*x)),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_axes_moves_every_element() {
        let shape = Shape::from([3, 1, 17, 20]);
        let strides = shape.strides();
        let x: Vec<f32> = (0..shape.size()).map(|v| v as f32).collect();
        for axes in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 2, 1], [2, 0, 1, 3], [1, 3, 0, 2], [2, 3, 0, 1]] {
            let to: Shape = axes.iter().map(|a| shape[*a]).collect();
            let mut y = vec![0.0; x.len()];
            transpose(&x, &shape, &axes, &mut y);
            for (i, y) in y.iter().enumerate() {
                let at = to.strides().iter().zip(to.iter()).map(|(s, d)| i / s % d).collect::<Vec<_>>();
                let from: usize = at.iter().zip(axes).map(|(at, a)| at * strides[a]).sum();
                assert_eq!(*y, x[from], "{axes:?} at {at:?}");
            }
        }
    }

    #[test]
    fn repeating_fills_rows_columns_and_new_axes() {
        let mut y = vec![0.0; 12];
        broadcast(&[1.0, 2.0, 3.0], &Shape::from([3, 1]), &Shape::from([2, 3, 2]), &mut y);
        assert_eq!(y, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        broadcast(&[7.0], &Shape::scalar(), &Shape::from([2, 3, 2]), &mut y);
        assert_eq!(y, [7.0; 12]);
    }

    #[test]
    fn elements_repeat_beside_each_other() {
        for (rows, above, n, times) in
            [(3, 1, 5, 2), (2, 3, 7, 3), (1, 2, 1, 4), (2, 2, 6, 8), (1, 1, 5, 9), (1, 2, 3 * GRAIN + 5, 2)]
        {
            let x: Vec<f32> = (0..rows * n).map(|v| v as f32).collect();
            let mut y = vec![-1.0; rows * above * n * times];
            broadcast(&x, &Shape::from([rows, 1, n, 1]), &Shape::from([rows, above, n, times]), &mut y);
            for (i, y) in y.iter().enumerate() {
                let (row, at) = (i / times / n / above, i / times % n);
                assert_eq!(*y, x[row * n + at], "element {i} of {rows} x {above} x {n} x {times}");
            }
        }
        broadcast(&[0.0; 0], &Shape::from([0, 1]), &Shape::from([0, 2]), &mut []);
        broadcast(&[0.0; 3], &Shape::from([3, 1]), &Shape::from([3, 0]), &mut []);
        broadcast(&[0.0; 3], &Shape::from([1, 3, 1]), &Shape::from([0, 3, 2]), &mut []);
    }
}
