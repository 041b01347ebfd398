//! Sums of numbers of 16 bits over broadcast axes. A few numbers are added in `f32`, and these sums in float64.

use std::ops::Range;

use super::BroadcastLayout;
use crate::array::Element;
use crate::kernels::Stored;
use crate::kernels::index::indices;
use crate::kernels::map::{LaneBuffer, TILE};
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::row::{each, sum};
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::Shared;

/// Rows that are added in `f32`, four at a time unless they are few.
const DEEP: usize = 32;
/// Fewer rows are few.
const FEW: usize = 16;

/// Adds elements of a part of a broadcast to sums.
struct NarrowPart<'a, E> {
    /// The part.
    layout: &'a BroadcastLayout,
    /// Its rows.
    rows: Range<usize>,
    /// Its columns.
    columns: Range<usize>,
    /// The elements of the whole broadcast.
    x: *const E,
    /// The sums, from the first one of the part on.
    to: *mut f64,
}

impl<E: Stored> Work<E::Wide> for NarrowPart<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let Self { layout, rows, columns, x, to } = self;
        let (base, n) = (layout.first[0], columns.len());
        if layout.last.a() == 0 {
            return layout.walk(
                rows,
                #[inline(always)]
                // SAFETY: the elements exist, there is a sum for each element of `a`, and the instructions are
                // available. Same below.
                |a, _, y| unsafe { *to.add(a - base) += sum::<V, E>(x.add(y + columns.start), n) },
            );
        }
        // Consecutive rows that add to the same sums are taken together.
        let below = layout.outer.last().filter(|axis| axis.a() == 0);
        let (height, down) = below.map_or((1, 0), |axis| (axis.n, axis.y()));
        let mut row = rows.start;
        while row < rows.end {
            let [a, _, y] = indices(&layout.outer, layout.first, row);
            let together = (height - row % height).min(rows.end - row).min(DEEP);
            for start in columns.clone().step_by(TILE) {
                let n = TILE.min(columns.end - start);
                // SAFETY: as above.
                unsafe { add_rows::<V, E>([together, down, n], x.add(y + start), to.add(a - base + start)) };
            }
            row += together;
        }
    }
}

/// Adds `rows` rows of `n` elements, `down` apart, to the sums of their columns.
///
/// # Safety
/// The instructions of `V` must be available, and elements and sums must exist. A tile holds `n` elements.
#[inline(always)]
unsafe fn add_rows<V: Vector, E: Stored<Wide = V::T>>(
    [rows, down, n]: [usize; 3],
    x: *const E,
    to: *mut f64,
) {
    let mut buffer = LaneBuffer::<V::T>::EMPTY;
    let buffer = buffer.0.as_mut_ptr().cast::<V::T>();
    let mut row = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        while row < rows {
            let (p, is_first) = (x.add(row * down), row == 0);
            // Few rows are added in turn, as other numbers are.
            let four = rows - row >= 4 && rows >= FEW;
            each::<V>(
                n,
                #[inline(always)]
                |at| {
                    let v = if four {
                        let [a, b, c, d] = [p, p.add(down), p.add(2 * down), p.add(3 * down)];
                        at.load(a).add(at.load(b)).add(at.load(c).add(at.load(d)))
                    } else {
                        at.load(p)
                    };
                    at.put(v, buffer, !is_first);
                },
            );
            row += if four { 4 } else { 1 };
        }
        for i in 0..n {
            *to.add(i) += buffer.add(i).read().real();
        }
    }
}

impl BroadcastLayout {
    /// For each element of `a`, the sum of the corresponding elements of `x`, which has the shape of `y`. Sums that
    /// leave the range of `f32` are not finite.
    ///
    /// # Panics
    /// If the machine has no registers for the type.
    pub(super) fn sums_in_registers<E: Stored>(&self, x: &[E]) -> Zeros<f64> {
        assert_eq!(x.len(), self.size());
        let mut sums = Zeros::new(self.span());
        let (to, x) = (Shared::new(sums.as_mut_ptr()), Shared::read_only(x.as_ptr()));
        self.plan(
            &|layout, rows, columns, to: &[Shared<f64>]| {
                E::with_registers(NarrowPart {
                    layout,
                    rows,
                    columns,
                    x: x.get().cast_const(),
                    to: to[0].get(),
                });
            },
            &[to],
        );
        sums
    }
}
