//! Loops over the gradient, values and states of a parameter. The caller supplies the formula.

use std::array::from_fn;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Float;
use super::reduce::PlainRange;
use super::threads::{self, Shared};
use crate::array::{DType, convert};

/// Elements in memory and their type.
#[derive(Clone, Copy, Debug)]
pub struct Cells {
    /// The first element.
    ptr: *mut u8,
    /// The type of the elements.
    dtype: DType,
    /// The number of elements.
    n: usize,
}

// SAFETY: this is only an address and a type. Each use is an unsafe operation with its own reason.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// Wraps `n` elements of the type at the pointer.
    ///
    /// # Safety
    /// The elements must be valid and not accessed otherwise while these cells or copies of them are used.
    pub unsafe fn new(ptr: *mut u8, dtype: DType, n: usize) -> Self {
        Self { ptr, dtype, n }
    }

    /// Type of each element.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The elements from `i` on.
    unsafe fn from(self, i: usize) -> Self {
        // SAFETY: the caller's index is in bounds.
        Self { ptr: unsafe { self.ptr.add(i * self.dtype.size()) }, ..self }
    }
}

/// Elements of another type are converted in tiles of this length, which stay in the cache.
const TILE: usize = 256;
/// Elements that are loaded before any is stored, so that the loop vectorizes.
const LANES: usize = 16;
/// Maximum number of chunks, so that their partial sums fit on the stack.
const CHUNKS: usize = 64;
/// Minimum number of elements of a chunk. Smaller ones cost more to hand over than they save.
const GRAIN: usize = 1 << 14;

/// Calls `work` with the number and the range of each chunk, in parallel.
fn chunks(n: usize, work: impl Fn(usize, Range<usize>) + Sync) {
    let grain = n.div_ceil(CHUNKS).next_multiple_of(TILE).max(GRAIN);
    threads::ranges(n, grain, |range| work(range.start / grain, range));
}

/// `w[i] = f(g[i], w[i], s[..][i])`, where `f` also updates the states. A null state reads as zero and is not
/// written.
///
/// `formula` makes `f`, once for each chunk.
///
/// # Safety
/// All must hold `n` elements. `g` may alias `w`; nothing else may overlap.
pub unsafe fn step<T: Float, const S: usize, F: Fn(T, T, &mut [T; S]) -> T>(
    n: usize,
    g: Cells,
    w: Cells,
    s: [*mut T; S],
    formula: impl Fn() -> F + Sync,
) {
    let s = s.map(Shared::new);
    chunks(n, |_, range| {
        let f = formula();
        // SAFETY: guaranteed by the caller, and chunks do not overlap.
        unsafe { each::<T, S, true>(range, g, w, s, |_, g, w, s| *w = f(g, *w, s)) };
    });
}

/// A sum of squares, in units: the norm is `unit` times the root of `sum`.
///
/// The unit is 1, unless a plain sum in float64 would overflow or lose digits.
#[derive(Clone, Copy, Debug)]
pub struct Squares {
    /// The unit of the numbers that were squared.
    unit: f64,
    /// The sum of the squares of the numbers divided by the unit.
    sum: f64,
}

impl Squares {
    /// The sum of no numbers.
    pub const NONE: Self = Self { unit: 1.0, sum: 0.0 };

    /// A unit, and the norm in that unit.
    pub fn root(self) -> [f64; 2] {
        [self.unit, self.sum.sqrt()]
    }

    /// The norm.
    pub fn norm(self) -> f64 {
        self.unit * self.sum.sqrt()
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = self.sum + other.sum;
        if self.sum == 0.0 || other.sum == 0.0 {
            return if self.sum == 0.0 { other } else { self };
        }
        let is_apart =
            self.sum.is_finite() && other.sum.is_finite() && (self.unit != other.unit || sum.is_infinite());
        if !is_apart {
            return Self { unit: self.unit, sum };
        }
        // The sum of two parts in one unit overflows only in the unit 1.
        let unit = if self.unit == other.unit { 1e100 } else { self.unit.max(other.unit) };
        let within = |part: Self| (part.sum.sqrt() * (part.unit / unit)).powi(2);
        Self { unit, sum: within(self) + within(other) }
    }
}

/// Sums of squares of the two numbers that `f` returns for each element. `f` may update the states.
///
/// If float64 elements leave the range, `again` makes a second `f`, which must return the same numbers without an
/// update of the states.
///
/// # Safety
/// As for [`step`].
pub unsafe fn squares<T: Float, const S: usize, F, G>(
    n: usize,
    g: Cells,
    w: Cells,
    s: [*mut T; S],
    formula: impl Fn() -> F + Sync,
    again: impl Fn() -> G + Sync,
) -> [Squares; 2]
where
    F: Fn(T, T, &mut [T; S]) -> [T; 2],
    G: Fn(T, T, &mut [T; S]) -> [T; 2],
{
    // SAFETY: guaranteed by the caller.
    let sums = unsafe { totals(n, g, w, s, formula, |sum, x| sum + x * x, |a, b| a + b) };
    // Squares of other types are in range, because they are computed in float64.
    let range = PlainRange::of::<f64>(n);
    if T::DTYPE != DType::F64 || !sums.iter().any(|sum| range.excludes(*sum, 0.0)) {
        return sums.map(|sum| Squares { unit: 1.0, sum });
    }
    // SAFETY: guaranteed by the caller.
    let largest = unsafe { totals(n, g, w, s, &again, |most, x| most.max(x.abs()), f64::max) };
    let units: [Option<f64>; 2] = from_fn(|k| range.unit(sums[k], 0.0, largest[k]));
    let [a, b] = units.map(|unit| unit.unwrap_or(1.0));
    let scaled = || {
        let f = again();
        move |g, w, s: &mut _| {
            let [x, y] = f(g, w, s);
            [x / T::of(a), y / T::of(b)]
        }
    };
    // SAFETY: guaranteed by the caller.
    let scaled = unsafe { totals(n, g, w, s, scaled, |sum, x| sum + x * x, |a, b| a + b) };
    from_fn(|k| match units[k] {
        Some(unit) => Squares { unit, sum: scaled[k] },
        None => Squares { unit: 1.0, sum: sums[k] },
    })
}

/// Folds the two numbers that `f` returns for each element, each from zero on.
///
/// # Safety
/// As for [`step`].
unsafe fn totals<T: Float, const S: usize, F: Fn(T, T, &mut [T; S]) -> [T; 2]>(
    n: usize,
    g: Cells,
    w: Cells,
    s: [*mut T; S],
    formula: impl Fn() -> F + Sync,
    with: impl Fn(f64, f64) -> f64 + Sync + Copy,
    join: impl Fn(f64, f64) -> f64 + Sync + Copy,
) -> [f64; 2] {
    let s = s.map(Shared::new);
    let mut totals = [[0.0; 2]; CHUNKS];
    let place = Shared::new(totals.as_mut_ptr());
    chunks(n, |chunk, range| {
        let f = formula();
        let mut sums = [[0.0; LANES]; 2];
        // SAFETY: guaranteed by the caller. Chunks do not overlap, and their number is bounded.
        unsafe {
            each::<T, S, false>(range, g, w, s, |lane, g, w, s| {
                let [a, b] = f(g, *w, s).map(T::real);
                sums[0][lane] = with(sums[0][lane], a);
                sums[1][lane] = with(sums[1][lane], b);
            });
            place.get().add(chunk).write(sums.map(|lanes| lanes.into_iter().fold(0.0, join)));
        }
    });
    totals.iter().fold([0.0; 2], |[a, b], [c, d]| [join(a, *c), join(b, *d)])
}

/// `g[i] = f(w[i], g[i])`. Both may be the same array.
pub fn map<T: Float>(w: Cells, g: Cells, f: impl Fn(T, T) -> T + Sync + Copy) {
    assert_eq!(w.n, g.n);
    // SAFETY: the cells hold as many elements.
    unsafe { step::<T, 0, _>(g.n, w, g, [], || move |w, g, _: &mut _| f(w, g)) };
}

/// The sum of squares of the elements.
pub fn sum_of_squares<T: Float>(g: Cells) -> Squares {
    let formula = || |g, _, _: &mut _| [g, T::ONE];
    // SAFETY: the cells hold as many elements.
    unsafe { squares::<T, 0, _, _>(g.n, g, g, [], formula, formula)[0] }
}

/// True if `f` holds for any element.
pub fn any<T: Float>(g: Cells, f: impl Fn(T) -> bool + Sync) -> bool {
    let found = AtomicBool::new(false);
    chunks(g.n, |_, range| {
        let mut here = false;
        // SAFETY: the ranges are within the elements.
        unsafe { each::<T, 0, false>(range, g, g, [], |_, g, _, []| here |= f(g)) };
        if here {
            found.store(true, Ordering::Relaxed);
        }
    });
    found.into_inner()
}

/// Calls `f` with the lane, gradient, value and states of each element. Values are written only if `WRITES`.
#[inline(always)]
unsafe fn each<T: Float, const S: usize, const WRITES: bool>(
    range: Range<usize>,
    g: Cells,
    w: Cells,
    s: [Shared<T>; S],
    mut f: impl FnMut(usize, T, &mut T, &mut [T; S]),
) {
    let n = range.len();
    // SAFETY: the range is within the elements of each array.
    let (g, w, s) = unsafe {
        let s = s.map(|s| if s.get().is_null() { s.get() } else { s.get().add(range.start) });
        (g.from(range.start), w.from(range.start), s)
    };
    let mut buffer = [[const { MaybeUninit::<T>::uninit() }; TILE]; 2];
    let direct = g.dtype == T::DTYPE && w.dtype == T::DTYPE;
    let tile = if direct { n.max(1) } else { TILE };
    for start in (0..n).step_by(tile) {
        let len = tile.min(n - start);
        // SAFETY: tiles are within the `n` elements of each array and hold `len` each.
        unsafe {
            let [g_buffer, w_buffer] = &mut buffer;
            let (g, w_at) = (load(g, start, len, g_buffer), load(w, start, len, w_buffer));
            let s = s.map(|s| if s.is_null() { s } else { s.add(start) });
            let at = |s: [*mut T; S], i| s.map(|s: *mut T| if s.is_null() { s } else { s.add(i) });
            let whole = len - len % LANES;
            for i in (0..whole).step_by(LANES) {
                block::<T, S, LANES, WRITES>(g.add(i), w_at.add(i), at(s, i), &mut f);
            }
            for i in whole..len {
                block::<T, S, 1, WRITES>(g.add(i), w_at.add(i), at(s, i), &mut f);
            }
            if WRITES && w.dtype != T::DTYPE {
                convert(w_at.cast(), T::DTYPE, w.from(start).ptr, w.dtype, len);
            }
        }
    }
}

/// Elements `start..start + len` as `T`: in place, or converted into a buffer.
#[inline(always)]
unsafe fn load<T: Float>(
    cells: Cells,
    start: usize,
    len: usize,
    buffer: &mut [MaybeUninit<T>; TILE],
) -> *mut T {
    // SAFETY: the range is within the elements, and fits the buffer if it is converted.
    unsafe {
        let source = cells.from(start).ptr;
        if cells.dtype == T::DTYPE {
            return source.cast();
        }
        convert(source, cells.dtype, buffer.as_mut_ptr().cast(), T::DTYPE, len);
        buffer.as_mut_ptr().cast()
    }
}

/// Updates `L` parameters and their states.
#[inline(always)]
unsafe fn block<T: Float, const S: usize, const L: usize, const WRITES: bool>(
    g: *const T,
    w: *mut T,
    s: [*mut T; S],
    f: &mut impl FnMut(usize, T, &mut T, &mut [T; S]),
) {
    // SAFETY: the pointers are valid for `L` elements. All are read before any is written.
    unsafe {
        let gs = g.cast::<[T; L]>().read();
        let mut ws = w.cast::<[T; L]>().read();
        let mut ss = s.map(|s| if s.is_null() { [T::ZERO; L] } else { s.cast::<[T; L]>().read() });
        for lane in 0..L {
            let mut states: [T; S] = from_fn(|k| ss[k][lane]);
            f(lane, gs[lane], &mut ws[lane], &mut states);
            for k in 0..S {
                ss[k][lane] = states[k];
            }
        }
        if WRITES {
            w.cast::<[T; L]>().write(ws);
        }
        for (s, values) in s.into_iter().zip(ss).filter(|(s, _)| !s.is_null()) {
            s.cast::<[T; L]>().write(values);
        }
    }
}
