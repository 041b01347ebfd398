//! `prelu` of elements of 16 bits, whose slopes are numbers that are broadcast.

use std::cell::Cell;
use std::ops::Range;

use super::BroadcastLayout;
use crate::array::Element;
use crate::kernels::Stored;
use crate::kernels::map::{LaneBuffer, TILE};
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::row::{At, each, sums};
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::Shared;

/// The arrays of a run. Null if they are missing.
struct SlopedArrays<E: Stored> {
    /// The input.
    x: Shared<E>,
    /// The gradient of the output, if gradients are computed.
    gy: Shared<E>,
    /// The output, or the gradient of the input, which is written.
    to: Shared<E>,
    /// The slopes, unless only their gradients are computed.
    slopes: Shared<E::Wide>,
}

/// Computes some rows.
struct SlopedRows<'a, E: Stored> {
    /// The slopes beside the elements of the input.
    layout: &'a BroadcastLayout,
    /// The rows.
    rows: Range<usize>,
    /// The columns.
    columns: Range<usize>,
    /// The arrays.
    arrays: &'a SlopedArrays<E>,
    /// The gradients of the slopes, from the first one of the layout on, to which is added. Null if not requested.
    sums: *mut f64,
}

impl<E: Stored> Work<E::Wide> for SlopedRows<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let Self { layout, rows, columns, arrays, sums: all } = self;
        let (base, varies) = (layout.first[0], layout.last.a() != 0);
        layout.walk(
            rows,
            #[inline(always)]
            |a, _, y| {
                for start in columns.clone().step_by(if varies { TILE } else { columns.len().max(1) }) {
                    let n = if varies { TILE.min(columns.end - start) } else { columns.len() };
                    let a = if varies { a + start } else { a };
                    // SAFETY: the arrays have the sizes of the layout, and the instructions are available.
                    unsafe {
                        let line = SlopedLine::<E>::new(arrays, y + start, a, varies);
                        let sum = if all.is_null() { all } else { all.add(a - base) };
                        line.run::<V>(n, sum);
                    }
                }
            },
        );
    }
}

/// Elements of a row.
#[derive(Clone, Copy)]
struct SlopedLine<E: Stored> {
    /// The input.
    x: *const E,
    /// The gradient of the output, or null.
    gy: *const E,
    /// What is written, or null.
    to: *mut E,
    /// The slopes, or null.
    slopes: *const E::Wide,
    /// True if each element has a slope of its own.
    varies: bool,
}

impl<E: Stored> SlopedLine<E> {
    /// The elements from `y` on, and their slopes from `a` on.
    #[inline(always)]
    fn new(arrays: &SlopedArrays<E>, y: usize, a: usize, varies: bool) -> Self {
        /// The address of element `i` of an array that may be missing.
        fn at<T>(of: Shared<T>, i: usize) -> *mut T {
            if of.get().is_null() { of.get() } else { of.get().wrapping_add(i) }
        }
        let SlopedArrays { x, gy, to, slopes } = arrays;
        Self { x: at(*x, y), gy: at(*gy, y), to: at(*to, y), slopes: at(*slopes, a), varies }
    }

    /// Writes what is to be written in a position. Returns the gradient of the slope.
    ///
    /// # Safety
    /// The instructions of `V` must be available, and the elements exist. Same below.
    #[inline(always)]
    unsafe fn at<V: Vector<T = E::Wide>>(self, at: At<V>, slope: V) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe {
            // Zero and larger numbers are above the first number below zero.
            let (below, zero) = (V::all(E::Wide::of(-f64::from(f32::from_bits(1)))), V::zero());
            let x = at.load(self.x);
            let slope = if self.varies && !self.slopes.is_null() { at.load(self.slopes) } else { slope };
            if self.gy.is_null() {
                at.store(x.where_larger(below, x, slope.mul(x)), self.to);
                return zero;
            }
            let gy = at.load(self.gy);
            if !self.to.is_null() {
                // No gradient passes a slope of zero, not even infinity.
                let size = slope.max(zero.sub(slope));
                let passed = size.where_larger(zero, gy, zero).mul(slope);
                at.store(x.where_larger(below, gy, passed), self.to);
            }
            x.where_larger(below, zero, gy.mul(x))
        }
    }

    /// Computes `n` elements, and adds to the gradient of their slopes, if that is not null.
    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self, n: usize, sum: *mut f64) {
        // SAFETY: guaranteed by the caller, and a tile holds as many elements if their slopes vary.
        unsafe {
            let slope = if self.slopes.is_null() { V::zero() } else { V::all(self.slopes.read()) };
            if sum.is_null() {
                return each::<V>(
                    n,
                    #[inline(always)]
                    |at| {
                        self.at(at, slope);
                    },
                );
            }
            if !self.varies {
                let [all] = sums::<V, 1>(
                    n,
                    #[inline(always)]
                    |at| [self.at(at, slope)],
                );
                *sum += all;
                return;
            }
            let mut buffer = LaneBuffer::<V::T>::EMPTY;
            let buffer = buffer.0.as_mut_ptr().cast::<V::T>();
            each::<V>(
                n,
                #[inline(always)]
                |at| at.store(self.at(at, slope), buffer),
            );
            for i in 0..n {
                *sum.add(i) += buffer.add(i).read().real();
            }
        }
    }
}

impl BroadcastLayout {
    /// Writes each `x` that is not negative to `y`, and others times their slope. The layout has the slopes as `a`.
    /// `x` and `y` may be one array.
    ///
    /// # Panics
    /// If arrays have other sizes than the layout, or if the machine has no registers for the type. Same below.
    pub fn sloped<E: Stored>(&self, x: &[Cell<E>], slopes: &[E::Wide], y: &[Cell<E>]) {
        assert!(self.fits([slopes.len(), usize::MAX, x.len().min(y.len())]), "arrays of other sizes");
        let [x, to] = [x, y].map(|of| Shared::new(of.as_ptr().cast_mut().cast::<E>()));
        let gy = Shared::new(std::ptr::null_mut());
        self.all_sloped(&SlopedArrays { x, gy, to, slopes: Shared::read_only(slopes.as_ptr()) });
    }

    /// As [`BroadcastLayout::sloped`], for all elements.
    fn all_sloped<E: Stored>(&self, arrays: &SlopedArrays<E>) {
        self.pieces(&|rows, columns| {
            E::with_registers(SlopedRows { layout: self, rows, columns, arrays, sums: std::ptr::null_mut() });
        });
    }

    /// Writes the gradient of the input of [`BroadcastLayout::sloped`], by its slopes, if requested.
    /// Returns the gradients of the slopes if `sums`.
    pub fn sloped_gradients<E: Stored>(
        &self,
        [x, gy]: [&[E]; 2],
        gx: Option<(&[E::Wide], &mut [E])>,
        sums: bool,
    ) -> Zeros<f64> {
        let (n, slopes) = gx.as_ref().map_or((x.len(), self.span()), |(w, gx)| (gx.len(), w.len()));
        let fits = self.fits([slopes, usize::MAX, x.len().min(gy.len()).min(n)]);
        assert!(fits, "arrays of other sizes");
        let (slopes, to) = match gx {
            Some((slopes, gx)) => (slopes.as_ptr(), gx.as_mut_ptr()),
            None => (std::ptr::null(), std::ptr::null_mut()),
        };
        let [x, gy] = [x, gy].map(|of| Shared::read_only(of.as_ptr()));
        let arrays = &SlopedArrays { x, gy, to: Shared::new(to), slopes: Shared::read_only(slopes) };
        if !sums {
            self.all_sloped(arrays);
            return Zeros::new(0);
        }
        let mut sums = Zeros::new(self.span());
        let to = Shared::new(sums.as_mut_ptr());
        self.plan(
            &|layout, rows, columns, to: &[Shared<f64>]| {
                E::with_registers(SlopedRows { layout, rows, columns, arrays, sums: to[0].get() });
            },
            &[to],
        );
        sums
    }
}
