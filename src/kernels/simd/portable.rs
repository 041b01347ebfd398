//! Four numbers in an array, for machines without a supported instruction set. The compiler may vectorize it.

use super::Vector;
use crate::kernels::Float;

/// Four numbers.
#[derive(Clone, Copy)]
pub(crate) struct Four<T>([T; 4]);

impl<T: Float> Four<T> {
    /// Combines lanes of two registers by `f`.
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

// SAFETY: plain Rust, and the caller guarantees the pointers.
unsafe impl<T: Float> Vector for Four<T> {
    type T = T;
    /// A range of lanes: the first one, and the end, which is excluded.
    type Mask = (usize, usize);
    const WIDTH: usize = 4;
    const IS_RARE: bool = true;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([T::ZERO; 4])
    }
    #[inline(always)]
    unsafe fn all(v: T) -> Self {
        Self([v; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { p.cast::<[T; 4]>().read() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: guaranteed by the caller.
        unsafe { p.cast::<[T; 4]>().write(self.0) };
    }
    #[inline(always)]
    unsafe fn first(n: usize) -> (usize, usize) {
        (0, n)
    }
    #[inline(always)]
    unsafe fn between(start: usize, end: usize) -> (usize, usize) {
        (start, end)
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const T, (start, end): (usize, usize)) -> Self {
        // SAFETY: only elements from `start` to `end` are read.
        let lane = |i| if i >= start && i < end { unsafe { p.wrapping_add(i).read() } } else { T::ZERO };
        Self(std::array::from_fn(lane))
    }
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut T, (start, end): (usize, usize)) {
        for (i, v) in self.0.into_iter().enumerate().take(end).skip(start) {
            // SAFETY: only elements from `start` to `end` are written.
            unsafe { p.wrapping_add(i).write(v) };
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn where_larger(self, other: Self, yes: Self, no: Self) -> Self {
        Self(std::array::from_fn(|i| if self.0[i] > other.0[i] { yes.0[i] } else { no.0[i] }))
    }
    #[inline(always)]
    unsafe fn equal(self, other: Self) -> u32 {
        let mut bits = 0;
        for i in 0..4 {
            bits |= u32::from(self.0[i] == other.0[i]) << i;
        }
        bits
    }
    #[inline(always)]
    unsafe fn keep(self, (start, end): (usize, usize)) -> Self {
        Self(std::array::from_fn(|i| if i >= start && i < end { self.0[i] } else { T::ZERO }))
    }
    #[inline(always)]
    unsafe fn mul_add(self, a: Self, b: Self) -> Self {
        // Two roundings, since a fused operation is a slow function call on machines without the instruction.
        Self(std::array::from_fn(|i| self.0[i] * a.0[i] + b.0[i]))
    }
    #[inline(always)]
    unsafe fn relu(self) -> Self {
        Self(self.0.map(|v| if v < T::ZERO { T::ZERO } else { v }))
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    #[inline(always)]
    unsafe fn evens(a: Self, b: Self) -> Self {
        Self([a.0[0], a.0[2], b.0[0], b.0[2]])
    }
    #[inline(always)]
    unsafe fn weave(a: Self, b: Self) -> (Self, Self) {
        (Self([a.0[0], b.0[0], a.0[1], b.0[1]]), Self([a.0[2], b.0[2], a.0[3], b.0[3]]))
    }
    #[inline(always)]
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        let from =
            |high: usize| move |i: usize| if i & D == 0 { a.0[i + high * D] } else { b.0[i + high * D - D] };
        (Self(std::array::from_fn(from(0))), Self(std::array::from_fn(from(1))))
    }
}
