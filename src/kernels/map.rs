//! Elementwise loops, with broadcasting, over raw memory: an output may be the memory of an input.

use smallvec::SmallVec;

use super::Float;
use super::simd::{Isa, isa};
use crate::array::Shape;

/// `y[i] = f(x[i])`.
///
/// # Safety
/// Both must hold `n` elements; they may be the same memory, but not overlap otherwise.
#[inline(always)]
pub unsafe fn unary<T: Float>(x: *const T, y: *mut T, n: usize, f: impl Fn(T) -> T) {
    // The same loop, compiled for each set of instructions.
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
        unsafe fn avx512<T: Float>(x: *const T, y: *mut T, n: usize, f: impl Fn(T) -> T) {
            // SAFETY: the caller's promise.
            unsafe { each(x, y, n, f) }
        }
        #[target_feature(enable = "avx2")]
        unsafe fn avx2<T: Float>(x: *const T, y: *mut T, n: usize, f: impl Fn(T) -> T) {
            // SAFETY: the caller's promise.
            unsafe { each(x, y, n, f) }
        }
        if n >= 8 {
            match isa() {
                // SAFETY: the machine has the instructions; the rest is the caller's promise.
                Isa::Avx512 => return unsafe { avx512(x, y, n, f) },
                // SAFETY: as above.
                Isa::Avx2 => return unsafe { avx2(x, y, n, f) },
                _ => {}
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { each(x, y, n, f) };
}

#[inline(always)]
unsafe fn each<T: Float>(x: *const T, y: *mut T, n: usize, f: impl Fn(T) -> T) {
    // Two loops: told apart, the compiler sees that neither overlaps itself.
    if std::ptr::eq(x, y) {
        for i in 0..n {
            // SAFETY: `i < n`; each element is read before it is written.
            unsafe { y.add(i).write(f(y.add(i).read())) };
        }
    } else {
        for i in 0..n {
            // SAFETY: `i < n`.
            unsafe { y.add(i).write(f(x.add(i).read())) };
        }
    }
}

/// How the elements of two arrays meet: axes that run together are merged, an axis of length one is repeated.
pub struct Pairing {
    dims: SmallVec<[usize; 4]>,
    a: SmallVec<[usize; 4]>,
    b: SmallVec<[usize; 4]>,
}

impl Pairing {
    /// The shape of two arrays together by NumPy's rules, or `None` if they do not fit.
    pub fn shape(a: &Shape, b: &Shape) -> Option<Shape> {
        if a == b {
            return Some(a.clone());
        }
        let n = a.ndim().max(b.ndim());
        let dim = |s: &Shape, i: usize| if i + s.ndim() < n { 1 } else { s[i + s.ndim() - n] };
        let mut out = Shape::default();
        let mut dims: SmallVec<[usize; 4]> = SmallVec::new();
        for i in 0..n {
            dims.push(match (dim(a, i), dim(b, i)) {
                (p, q) if p == q => p,
                (1, q) => q,
                (p, 1) => p,
                _ => return None,
            });
        }
        out.clone_from(&dims.into_iter().collect());
        Some(out)
    }

    /// The pairing of arrays of shapes `a` and `b`, which [`Pairing::shape`] accepts.
    pub fn new(a: &Shape, b: &Shape) -> Self {
        if a == b {
            let one = |n| SmallVec::from_slice(&[n]);
            return Self { dims: one(a.size()), a: one(1), b: one(1) };
        }
        let n = a.ndim().max(b.ndim());
        let lift = |s: &Shape| -> SmallVec<[(usize, usize); 4]> {
            let strides = s.strides();
            let lead = n - s.ndim();
            (0..n)
                .map(|i| if i < lead || s[i - lead] == 1 { (1, 0) } else { (s[i - lead], strides[i - lead]) })
                .collect()
        };
        let (a, b) = (lift(a), lift(b));
        let mut merged = Self { dims: SmallVec::new(), a: SmallVec::new(), b: SmallVec::new() };
        for i in 0..n {
            // An empty axis (0 against 1) has length zero.
            let dim = if a[i].1 == 0 && b[i].1 == 0 {
                a[i].0.min(b[i].0)
            } else if a[i].1 == 0 {
                b[i].0
            } else {
                a[i].0
            };
            if dim == 1 {
                continue;
            }
            if let (Some(d), Some(sa), Some(sb)) =
                (merged.dims.last_mut(), merged.a.last_mut(), merged.b.last_mut())
                && *sa == a[i].1 * dim
                && *sb == b[i].1 * dim
            {
                (*d, *sa, *sb) = (*d * dim, a[i].1, b[i].1);
                continue;
            }
            merged.dims.push(dim);
            merged.a.push(a[i].1);
            merged.b.push(b[i].1);
        }
        if merged.dims.is_empty() {
            merged.dims.push(1);
            merged.a.push(1);
            merged.b.push(1);
        }
        merged
    }

    /// Calls `row(first output, first of a, first of b)` for each run along the last axis.
    #[inline(always)]
    fn rows(&self, mut row: impl FnMut(usize, usize, usize)) {
        let last = self.dims.len() - 1;
        let n = self.dims[last];
        let rows: usize = self.dims[..last].iter().product();
        if n == 0 {
            return;
        }
        let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, last);
        let (mut a, mut b) = (0, 0);
        for r in 0..rows {
            row(r * n, a, b);
            for axis in (0..last).rev() {
                at[axis] += 1;
                a += self.a[axis];
                b += self.b[axis];
                if at[axis] < self.dims[axis] {
                    break;
                }
                a -= self.a[axis] * self.dims[axis];
                b -= self.b[axis] * self.dims[axis];
                at[axis] = 0;
            }
        }
    }

    fn inner(&self) -> (usize, usize, usize) {
        let last = self.dims.len() - 1;
        (self.dims[last], self.a[last], self.b[last])
    }

    /// `y = f(a, b)`.
    ///
    /// # Safety
    /// The arrays must have the shapes of the pairing; `y` may be the memory of one that is not repeated.
    #[inline(always)]
    pub unsafe fn map<T: Float>(&self, a: *const T, b: *const T, y: *mut T, f: impl Fn(T, T) -> T) {
        let (n, sa, sb) = self.inner();
        self.rows(|y0, a0, b0| {
            // SAFETY: offsets stay within the shapes that the caller promises.
            unsafe {
                let (a, b, y) = (a.add(a0), b.add(b0), y.add(y0));
                match (sa, sb) {
                    (1, 1) => (0..n).for_each(|i| y.add(i).write(f(*a.add(i), *b.add(i)))),
                    (0, 1) => {
                        let a = *a;
                        (0..n).for_each(|i| y.add(i).write(f(a, *b.add(i))));
                    }
                    (1, 0) => {
                        let b = *b;
                        (0..n).for_each(|i| y.add(i).write(f(*a.add(i), b)));
                    }
                    _ => (0..n).for_each(|i| y.add(i).write(f(*a.add(i * sa), *b.add(i * sb)))),
                }
            }
        });
    }

    /// Adds `f(a, b, output index)` to the element of `g`, an array laid out as `a`, that took part in it.
    ///
    /// `f` gets the indices of the three elements. Sums run in a fixed order.
    #[inline(always)]
    pub fn reduce_to_a<T: Float>(&self, g: &mut [T], f: impl Fn(usize, usize, usize) -> T) {
        let (n, sa, sb) = self.inner();
        self.rows(|y0, a0, b0| {
            if sa == 0 {
                // Eight sums side by side: closer to the exact sum than one, and quicker.
                let mut sums = [T::ZERO; 8];
                for i in 0..n {
                    sums[i % 8] = sums[i % 8] + f(a0, b0 + i * sb, y0 + i);
                }
                let sum =
                    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
                g[a0] = g[a0] + sum;
            } else {
                for i in 0..n {
                    let at = a0 + i * sa;
                    g[at] = g[at] + f(at, b0 + i * sb, y0 + i);
                }
            }
        });
    }

    /// The same pairing seen from the other array.
    pub fn swapped(self) -> Self {
        Self { dims: self.dims, a: self.b, b: self.a }
    }
}
