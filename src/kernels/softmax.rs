//! Normalised exponentials along one axis. Knows slices; knows no shapes, graphs or Python.
//!
//! Sums run in float64 and in an order that the shape alone decides. Lines are taken in blocks that stay in the cache.

use std::mem::MaybeUninit;

use super::Float;
use super::map::{GRAIN, Room, TILE};
use super::pairing::sum_along;
use super::scratch::Zeros;
use super::simd::vectorised;
use super::threads::{self, Shared};

/// Numbers side by side along a line: what comes of them is joined at its end.
const LANES: usize = 32;
/// Lines that are taken together where neighbours belong to different ones.
const WIDTH: usize = 64;

/// The lines of an array along one axis: `outer * inner` of them, of `n` elements `inner` apart.
#[derive(Clone, Copy)]
pub struct Lines {
    /// Elements before the axis.
    pub outer: usize,
    /// Elements along the axis.
    pub n: usize,
    /// Elements after the axis.
    pub inner: usize,
}

/// Lines beside each other, `WIDTH` at most.
#[derive(Clone, Copy)]
pub struct Block {
    /// The first line.
    pub line: usize,
    width: usize,
    first: usize,
    n: usize,
    /// From one element of a line to the next.
    step: usize,
}

/// A number for each line of a block.
pub type Each<T> = [T; WIDTH];

impl Lines {
    /// Number of lines.
    pub fn count(self) -> usize {
        self.outer * self.inner
    }

    /// Where element `k` of line `line` is.
    #[inline(always)]
    pub fn at(self, line: usize, k: usize) -> usize {
        (line / self.inner * self.n + k) * self.inner + line % self.inner
    }

    /// Calls `work` for blocks that are all lines together, in parallel. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn blocks(self, work: impl Fn(Block) + Sync + Copy) {
        let Self { outer, n, inner } = self;
        // Lines that are neighbours as wholes are taken together while they are short.
        let width = if inner == 1 { (TILE / n.max(1)).clamp(1, WIDTH) } else { WIDTH.min(inner) };
        let (rows, length) = if inner == 1 { (1, outer) } else { (outer, inner) };
        let blocks = length.div_ceil(width.max(1));
        let grain = (GRAIN / (n * width).max(1)).max(1);
        threads::ranges(rows * blocks, grain, |range| {
            vectorised(
                #[inline(always)]
                move || {
                    for i in range {
                        let (row, column) = (i / blocks, i % blocks * width);
                        let (line, first) = if inner == 1 {
                            (column, column * n)
                        } else {
                            (row * inner + column, row * n * inner + column)
                        };
                        // The last bound is there for the compiler.
                        let width = width.min(length - column).min(WIDTH);
                        work(Block { line, width, first, n, step: inner });
                    }
                },
            );
        });
    }

    /// The sum of `f(element)` along each line. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn sums(self, f: impl Fn(usize) -> f64 + Sync + Copy) -> Zeros<f64> {
        let mut sums = Zeros::<f64>::new(self.count());
        let to = Shared::new(sums.as_mut_ptr());
        self.blocks(
            #[inline(always)]
            move |block| {
                let sums = block.sums(
                    #[inline(always)]
                    |i, _| f(i),
                );
                // SAFETY: each line is in one block.
                block.lines(|j| unsafe { to.get().add(block.line + j).write(sums[j]) });
            },
        );
        sums
    }
}

impl Block {
    /// Calls `f` with the number of each line in the block.
    #[inline(always)]
    pub fn lines(self, mut f: impl FnMut(usize)) {
        for j in 0..self.width {
            f(j);
        }
    }

    /// Calls `f(element, line in the block)` for each element. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn each(self, mut f: impl FnMut(usize, usize)) {
        if self.step == 1 {
            for j in 0..self.width {
                let first = self.first + j * self.n;
                for i in first..first + self.n {
                    f(i, j);
                }
            }
            return;
        }
        for k in 0..self.n {
            let row = self.first + k * self.step;
            for j in 0..self.width {
                f(row + j, j);
            }
        }
    }

    /// Calls `f(element)` for each element, in as long runs as there are. It must be `#[inline(always)]`.
    #[inline(always)]
    fn all(self, mut f: impl FnMut(usize)) {
        let (runs, n) = if self.step == 1 { (1, self.width * self.n) } else { (self.n, self.width) };
        for k in 0..runs {
            let first = self.first + k * self.step;
            for i in first..first + n {
                f(i);
            }
        }
    }

    /// The sum of `f(element, line in the block)` along each line. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn sums(self, f: impl Fn(usize, usize) -> f64) -> Each<f64> {
        let mut sums = [0.0; WIDTH];
        if self.step != 1 {
            self.each(
                #[inline(always)]
                |i, j| sums[j] += f(i, j),
            );
            return sums;
        }
        for (j, sum) in sums[..self.width].iter_mut().enumerate() {
            let first = self.first + j * self.n;
            [*sum] = sum_along(
                0..self.n,
                #[inline(always)]
                |k| [f(first + k, j)],
            );
        }
        sums
    }

    /// The largest element of each line.
    ///
    /// # Safety
    /// `x` must be all lines.
    #[inline(always)]
    unsafe fn max<T: Float>(self, x: *const T) -> Each<T> {
        let larger = |a: T, b: T| if b > a { b } else { a };
        // SAFETY: the caller's promise.
        let at = |i: usize| unsafe { x.add(i).read() };
        let mut max = [T::NEG_INFINITY; WIDTH];
        if self.step != 1 {
            self.each(
                #[inline(always)]
                |i, j| max[j] = larger(max[j], at(i)),
            );
            return max;
        }
        for (j, max) in max[..self.width].iter_mut().enumerate() {
            let first = self.first + j * self.n;
            let whole = if self.n < LANES { 0 } else { self.n - self.n % LANES };
            if whole > 0 {
                let mut lanes = [T::NEG_INFINITY; LANES];
                for k in (0..whole).step_by(LANES) {
                    for (l, lane) in lanes.iter_mut().enumerate() {
                        *lane = larger(*lane, at(first + k + l));
                    }
                }
                *max = join(lanes, larger);
            }
            for k in whole..self.n {
                *max = larger(*max, at(first + k));
            }
        }
        max
    }
}

/// Joins lanes by halves.
#[inline(always)]
fn join<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut n = LANES / 2;
    while n > 0 {
        for l in 0..n {
            lanes[l] = f(lanes[l], lanes[l + n]);
        }
        n /= 2;
    }
    lanes[0]
}

/// `y = exp(x) / sum(exp(x))` along each line.
pub fn softmax<T: Float>(lines: Lines, x: &[T], y: &mut [T]) {
    assert!(x.len() == lines.count() * lines.n && y.len() == x.len());
    let (x, y) = (Shared::read_only(x.as_ptr()), Shared::new(y.as_mut_ptr()));
    lines.blocks(
        #[inline(always)]
        // SAFETY: elements of the block are elements of both, and no other block has them.
        move |block| unsafe {
            let (x, y) = (x.get().cast_const(), y.get());
            let max = block.max(x);
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write(x.add(i).read() - max[j]),
            );
            block.all(
                #[inline(always)]
                |i| y.add(i).write(y.add(i).read().exp()),
            );
            let sums = block.sums(
                #[inline(always)]
                |i, _| y.add(i).read().real(),
            );
            let mut scale = [T::ZERO; WIDTH];
            block.lines(|j| scale[j] = T::of(1.0 / sums[j]));
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write(y.add(i).read() * scale[j]),
            );
        },
    );
}

/// The largest element of each line of a block, and the logarithm of the sum of `exp(x - max)`.
///
/// # Safety
/// `x` must be all lines.
#[inline(always)]
unsafe fn log_sums_of<T: Float>(block: Block, x: *const T) -> (Each<T>, Each<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        let max = block.max(x);
        let sums = if block.step == 1 && block.width * block.n <= TILE {
            // Short lines in one run.
            let mut room: Room<T> = [MaybeUninit::uninit(); TILE];
            let room = room.as_mut_ptr().cast::<T>();
            block.each(
                #[inline(always)]
                |i, j| room.add(i - block.first).write(x.add(i).read() - max[j]),
            );
            for i in 0..block.width * block.n {
                room.add(i).write(room.add(i).read().exp());
            }
            block.sums(
                #[inline(always)]
                |i, _| room.add(i - block.first).read().real(),
            )
        } else {
            block.sums(
                #[inline(always)]
                |i, j| (x.add(i).read() - max[j]).exp().real(),
            )
        };
        let mut logs = [T::ZERO; WIDTH];
        block.lines(|j| logs[j] = T::of(sums[j].ln()));
        (max, logs)
    }
}

/// The largest element of each line, and the logarithm of the sum of `exp(x - max)`: what is left in `all`.
pub fn log_sums<T: Float>(lines: Lines, x: &[T], all: &mut Vec<(T, T)>) {
    assert_eq!(x.len(), lines.count() * lines.n);
    all.clear();
    all.resize(lines.count(), (T::ZERO, T::ZERO));
    let (x, to) = (Shared::read_only(x.as_ptr()), Shared::new(all.as_mut_ptr()));
    lines.blocks(
        #[inline(always)]
        // SAFETY: elements of the block are elements of `x`, and each line is in one block.
        move |block| unsafe {
            let (max, logs) = log_sums_of(block, x.get());
            block.lines(|j| to.get().add(block.line + j).write((max[j], logs[j])));
        },
    );
}

/// `y = x - log(sum(exp(x)))` along each line.
pub fn log_softmax<T: Float>(lines: Lines, x: &[T], y: &mut [T]) {
    assert!(x.len() == lines.count() * lines.n && y.len() == x.len());
    let (x, y) = (Shared::read_only(x.as_ptr()), Shared::new(y.as_mut_ptr()));
    lines.blocks(
        #[inline(always)]
        // SAFETY: elements of the block are elements of both, and no other block has them.
        move |block| unsafe {
            let (x, y) = (x.get().cast_const(), y.get());
            let (max, logs) = log_sums_of(block, x);
            block.each(
                #[inline(always)]
                |i, j| y.add(i).write((x.add(i).read() - max[j]) - logs[j]),
            );
        },
    );
}

/// Writes `f(element, sum of g(element) along its line, line)` to each element, or adds it. Both must be
/// `#[inline(always)]`.
#[inline(always)]
pub fn put_by_sums<T: Float>(
    lines: Lines,
    y: &mut [T],
    accumulate: bool,
    g: impl Fn(usize) -> f64 + Sync + Copy,
    f: impl Fn(usize, T, usize) -> T + Sync + Copy,
) {
    assert_eq!(y.len(), lines.count() * lines.n);
    let y = Shared::new(y.as_mut_ptr());
    lines.blocks(
        #[inline(always)]
        move |block| {
            let sums = block.sums(
                #[inline(always)]
                |i, _| g(i),
            );
            let mut rounded = [T::ZERO; WIDTH];
            block.lines(|j| rounded[j] = T::of(sums[j]));
            block.each(
                #[inline(always)]
                // SAFETY: elements of the block are elements of `y`, and no other block has them.
                |i, j| unsafe {
                    let (y, v) = (y.get().add(i), f(i, rounded[j], block.line + j));
                    y.write(if accumulate { y.read() + v } else { v });
                },
            );
        },
    );
}
