//! The lines of an array along one axis, and blocks of them. Knows indices; knows little of elements.

use crate::kernels::Float;
use crate::kernels::broadcast::{sum_along, sum_of};
use crate::kernels::map::{Aligned, GRAIN, TILE};
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::vectorised_of;
use crate::kernels::sixteen_bits::{StoredElements, memory};
use crate::kernels::threads::{self, Shared};

/// The number of partial results along a line, which are combined at its end.
const LANES: usize = 32;
/// Lines that are taken together where neighbours belong to different ones.
pub(super) const WIDTH: usize = 64;

/// The lines of an array along one axis: `outer * inner` of them, of `n` elements `inner` apart.
#[derive(Clone, Copy)]
pub struct SoftmaxLines {
    /// Elements before the axis.
    pub outer: usize,
    /// Elements along the axis.
    pub n: usize,
    /// Elements after the axis.
    pub inner: usize,
}

/// Lines beside each other, `WIDTH` at most.
#[derive(Clone, Copy)]
pub struct LineBlock {
    /// The first line.
    pub line: usize,
    /// The number of lines.
    pub(super) width: usize,
    /// The first element of the first line.
    pub(super) first: usize,
    /// Elements of a line.
    pub(super) n: usize,
    /// The distance from an element of a line to the next.
    pub(super) step: usize,
}

/// A number for each line of a block.
pub type Each<T> = [T; WIDTH];

impl SoftmaxLines {
    /// Number of lines.
    pub fn count(self) -> usize {
        self.outer * self.inner
    }

    /// The index of element `k` of line `line`.
    #[inline(always)]
    pub fn at(self, line: usize, k: usize) -> usize {
        (line / self.inner * self.n + k) * self.inner + line % self.inner
    }

    /// Calls `work` for blocks that are all lines together, in parallel. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn blocks(self, work: impl Fn(LineBlock) + Sync + Copy) {
        self.blocks_with::<_, false>(
            || (),
            #[inline(always)]
            move |(), block| work(block),
        );
    }

    /// As [`SoftmaxLines::blocks`], with the addresses of arrays that are read and of an array that is written, if any.
    /// Blocks of elements of 16 bits are converted in scratch memory. If `adds`, the array that is written is read
    /// too. `work` must write all elements of the block.
    #[inline(always)]
    pub(super) fn blocks_of<T: Float, const N: usize, const NARROW: bool>(
        self,
        x: [StoredElements<T, NARROW>; N],
        y: Option<StoredElements<T, NARROW>>,
        adds: bool,
        work: impl Fn(LineBlock, [*const T; N], *mut T) + Sync + Copy,
    ) {
        let size = if NARROW { self.most_in_block() } else { 0 };
        self.blocks_with::<_, NARROW>(
            move || memory::<T>((N + 1) * size),
            #[inline(always)]
            move |wide, block| {
                let (mut from, mut to) = ([std::ptr::null::<T>(); N], std::ptr::null_mut::<T>());
                if !NARROW {
                    for k in 0..N {
                        from[k] = x[k].numbers();
                    }
                    if let Some(y) = y {
                        to = y.numbers();
                    }
                    return work(block, from, to);
                }
                let wide = wide.ptr();
                for (k, from) in from.iter_mut().enumerate() {
                    *from = wide.wrapping_add(k * size);
                }
                to = wide.wrapping_add(N * size);
                // SAFETY: the block is within the arrays, and the memory is large enough. Same below.
                block.convert(|i, at, n| unsafe {
                    for (k, x) in x.iter().enumerate() {
                        x.widen(i, n, wide.add(k * size + at));
                    }
                    if let Some(y) = y.filter(|_| adds) {
                        y.widen(i, n, to.add(at));
                    }
                });
                work(block.in_scratch(), from, to);
                if let Some(y) = y {
                    // SAFETY: as above.
                    block.convert(|i, at, n| unsafe { y.narrow(i, n, to.add(at)) });
                }
            },
        );
    }

    /// The number of lines in a block, at most.
    fn width(self) -> usize {
        // Lines that are neighbours as wholes are taken together while they are short.
        if self.inner == 1 { (TILE / self.n.max(1)).clamp(1, WIDTH) } else { WIDTH.min(self.inner) }
    }

    /// The number of elements of a block in scratch memory, at most.
    fn most_in_block(self) -> usize {
        self.n * if self.inner == 1 { self.width() } else { self.width().max(2) }
    }

    /// As [`SoftmaxLines::blocks`], with a state that `make` creates for several blocks.
    #[inline(always)]
    fn blocks_with<M, const NARROW: bool>(
        self,
        make: impl Fn() -> M + Sync + Copy,
        work: impl Fn(&mut M, LineBlock) + Sync + Copy,
    ) {
        let Self { outer, n, inner } = self;
        let width = self.width();
        let (rows, length) = if inner == 1 { (1, outer) } else { (outer, inner) };
        let blocks = length.div_ceil(width.max(1));
        let grain = (GRAIN / (n * width).max(1)).max(1);
        threads::ranges(rows * blocks, grain, |range| {
            let mut made = make();
            vectorised_of::<_, NARROW>(
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
                        work(&mut made, LineBlock { line, width, first, n, step: inner });
                    }
                },
            );
        });
    }

    /// The sum of `f(element)` along each line. It must be `#[inline(always)]`.
    #[inline(always)]
    pub fn sums<T: Float>(self, f: impl Fn(usize) -> T + Sync + Copy) -> Zeros<f64> {
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

impl LineBlock {
    /// The same lines in scratch memory, without the elements of other lines.
    fn in_scratch(self) -> Self {
        // Lines that are not neighbours as wholes stay so: that decides the order of sums.
        Self { first: 0, step: if self.step == 1 { 1 } else { self.width.max(2) }, ..self }
    }

    /// Calls `f(element, element in scratch memory, n)` for runs of `n` elements.
    fn convert(self, mut f: impl FnMut(usize, usize, usize)) {
        if self.step == 1 || self.step == self.width {
            return f(self.first, 0, self.width * self.n);
        }
        for k in 0..self.n {
            f(self.first + k * self.step, k * self.width.max(2), self.width);
        }
    }

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
    pub(super) fn all(self, mut f: impl FnMut(usize)) {
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
    pub fn sums<T: Float>(self, f: impl Fn(usize, usize) -> T) -> Each<f64> {
        let mut sums = [0.0; WIDTH];
        if self.step != 1 {
            self.each(
                #[inline(always)]
                |i, j| sums[j] += f(i, j).real(),
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

    /// The sums of the elements of lines.
    ///
    /// # Safety
    /// `x` must be all lines.
    #[inline(always)]
    pub(super) unsafe fn sums_of<T: Float>(self, x: *const T) -> Each<f64> {
        if self.step != 1 {
            return self.sums(
                #[inline(always)]
                // SAFETY: guaranteed by the caller. Same below.
                |i, _| unsafe { x.add(i).read() },
            );
        }
        let mut sums = [0.0; WIDTH];
        for (j, sum) in sums[..self.width].iter_mut().enumerate() {
            // SAFETY: as above.
            *sum = unsafe { sum_of(x.add(self.first + j * self.n), self.n) };
        }
        sums
    }

    /// The largest element of each line.
    ///
    /// # Safety
    /// `x` must be all lines.
    #[inline(always)]
    pub(super) unsafe fn max<T: Float>(self, x: *const T) -> Each<T> {
        let larger = |a: T, b: T| if b > a { b } else { a };
        // SAFETY: guaranteed by the caller.
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
                let mut all = Aligned([T::NEG_INFINITY; LANES]);
                let lanes = &mut all.0;
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

/// Joins lanes by halves, in their place.
#[inline(always)]
fn join<T: Copy>(lanes: &mut [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut n = LANES / 2;
    while n > 0 {
        for l in 0..n {
            lanes[l] = f(lanes[l], lanes[l + n]);
        }
        n /= 2;
    }
    lanes[0]
}
