//! Loops over a row of numbers in registers, and sums along it. Knows registers, not the meaning of a row.
//!
//! The lane of an element depends on its position in the row. Lanes are added in an order that depends only on the
//! length of the row. So the result is the same to the bit for every register width.

use super::{Vector, WIDEST};
use crate::array::Element;
use crate::kernels::{Movable, Stored};

/// The number of parallel sums.
const LANES: usize = 64;
/// Elements that are added in their own precision before the sum is added to one in float64. Apart from its formula,
/// no element goes through more roundings than `BLOCK / LANES + log2(LANES)`, which is 14.
const BLOCK: usize = 512;
/// The largest number of registers that hold the lanes.
const MOST: usize = 32;

/// A position in a row: a whole register from element `i` on, or the rest of the row.
#[derive(Clone, Copy)]
pub(crate) struct At<V: Vector> {
    /// The index of the first element.
    i: usize,
    /// The lanes in use. None for a whole register.
    left: Option<V::Mask>,
}

impl<V: Vector> At<V> {
    /// The position from element `i` on, in a row that ends before element `end`.
    #[inline(always)]
    unsafe fn new(i: usize, end: usize) -> Self {
        // SAFETY: the instructions are available.
        let left = if end - i < V::WIDTH { Some(unsafe { V::first(end - i) }) } else { None };
        Self { i, left }
    }

    /// The elements of the row at `p` in this position, with zeros after its end. Elements of 16 bits are widened.
    ///
    /// # Safety
    /// The instructions of `V` must be available and the row readable, or writable in the functions below.
    #[inline(always)]
    pub(crate) unsafe fn load<E: Stored<Wide = V::T>>(self, p: *const E) -> V {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe { E::load(p.add(self.i), self.left) }
    }

    /// The elements of `p` with the indices in a row of numbers, which must consist of whole registers.
    #[inline(always)]
    pub(crate) unsafe fn gather(self, p: *const V::T, numbers: *const i32) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::gather(p, numbers.add(self.i)) }
    }

    /// Writes the elements in this position, rounded to the type of the row.
    #[inline(always)]
    pub(crate) unsafe fn store<E: Stored<Wide = V::T>>(self, v: V, p: *mut E) {
        // SAFETY: as above.
        unsafe { E::store(v, p.add(self.i), self.left) }
    }

    /// Writes or adds the elements in this position.
    #[inline(always)]
    pub(crate) unsafe fn put<E: Stored<Wide = V::T>>(self, v: V, p: *mut E, accumulate: bool) {
        // SAFETY: as above.
        unsafe { self.store(if accumulate { self.load(p.cast_const()).add(v) } else { v }, p) };
    }
}

/// Calls `f` for all positions of a row of `n` elements, in order. `f` must be `#[inline(always)]`.
///
/// # Safety
/// The instructions of `V` must be available. Same below.
#[inline(always)]
pub(crate) unsafe fn each<V: Vector>(n: usize, mut f: impl FnMut(At<V>)) {
    let mut i = 0;
    while i + V::WIDTH <= n {
        f(At { i, left: None });
        i += V::WIDTH;
    }
    if i < n {
        // SAFETY: the instructions are available. Same below.
        f(unsafe { At::new(i, n) });
    }
}

/// The sums of the results of `f` for all positions of a row of `n` elements. `f` must be `#[inline(always)]`.
#[inline(always)]
pub(crate) unsafe fn sums<V: Vector, const K: usize>(n: usize, f: impl Fn(At<V>) -> [V; K]) -> [f64; K] {
    let mut sums = [0.0; K];
    let mut start = 0;
    while start < n {
        let end = n.min(start + BLOCK);
        // SAFETY: as above.
        let block = unsafe { block_sums(start, end, &f) };
        for k in 0..K {
            sums[k] += block[k].real();
        }
        start = end;
    }
    sums
}

/// The sum of a row of `n` elements.
///
/// # Safety
/// The instructions of `V` must be available, and the row readable.
#[inline(always)]
pub(crate) unsafe fn sum<V: Vector, E: Stored<Wide = V::T>>(p: *const E, n: usize) -> f64 {
    // SAFETY: guaranteed by the caller.
    let [sum] = unsafe {
        sums::<V, 1>(
            n,
            #[inline(always)]
            |at| [at.load(p)],
        )
    };
    sum
}

/// Sums a block of the row in `LANES` lanes, and adds the lanes up.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // constant counts keep sums in registers
unsafe fn block_sums<V: Vector, const K: usize>(
    mut i: usize,
    end: usize,
    f: &impl Fn(At<V>) -> [V; K],
) -> [V::T; K] {
    let n = LANES / V::WIDTH;
    // SAFETY: as above.
    unsafe {
        let mut lanes = [[V::zero(); MOST]; K];
        while i + LANES <= end {
            for r in 0..n {
                let v = f(At { i: i + r * V::WIDTH, left: None });
                for k in 0..K {
                    lanes[k][r] = lanes[k][r].add(v[k]);
                }
            }
            i += LANES;
        }
        for r in 0..n {
            if i >= end {
                break;
            }
            let at = At::new(i, end);
            let v = f(at);
            for k in 0..K {
                let v = match at.left {
                    None => v[k],
                    Some(mask) => v[k].keep(mask),
                };
                lanes[k][r] = lanes[k][r].add(v);
            }
            i += V::WIDTH;
        }
        // Does not use `map`, since library functions are compiled for the baseline instructions.
        let mut sums = [V::T::ZERO; K];
        for k in 0..K {
            sums[k] = joined(lanes[k]);
        }
        sums
    }
}

/// The sum of all lanes, by halving.
#[inline(always)]
unsafe fn joined<V: Vector>(mut lanes: [V; MOST]) -> V::T {
    let mut n = LANES / V::WIDTH / 2;
    while n > 0 {
        for r in 0..n {
            // SAFETY: as above.
            lanes[r] = unsafe { lanes[r].add(lanes[r + n]) };
        }
        n /= 2;
    }
    let mut last = [V::T::ZERO; WIDEST];
    // SAFETY: the buffer holds the longest register.
    unsafe { lanes[0].store(last.as_mut_ptr()) };
    let mut n = V::WIDTH / 2;
    while n > 0 {
        for l in 0..n {
            last[l] = last[l] + last[l + n];
        }
        n /= 2;
    }
    last[0]
}
