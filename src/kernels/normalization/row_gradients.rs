//! Gradients if neighbours along the last axis have the same statistics: row by row, in registers.

use super::rows::Unit;
use super::{GradientPlan, Gradients};
use crate::array::Element;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::simd::row::{each, sums};
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::Shared;
use crate::kernels::{Movable, Stored};

/// The number of rows that are processed together, so that their column sums stay in registers.
const TOGETHER: usize = 8;

/// Writes the gradient by `x`. Returns the sums for the gradients of parameters and of statistics.
pub(super) fn gradients<E: Stored>(g: &Gradients<'_, E>, plan: GradientPlan<E>) -> [[Zeros<f64>; 2]; 2] {
    let broadcast = &g.layout.broadcast;
    let (by_params, same) = (broadcast.last_varies().1, broadcast.is_same());
    let mut of_stats = [(); 2].map(|()| Zeros::new(g.layout.n_stats));
    let mut of_params = [(); 2].map(|()| Zeros::new(if by_params { 0 } else { g.layout.n_params }));
    // Sums of rows. Several parts may have the same parameter, so these are added in order at the end.
    let mut of_rows =
        [(); 2].map(|()| Zeros::new(if by_params || same || !plan.params { 0 } else { broadcast.rows() }));
    let shared = |sums: &mut [Zeros<f64>; 2]| sums.each_mut().map(|sums| Shared::new(sums.as_mut_ptr()));
    let (stats, own, rows) = (shared(&mut of_stats), shared(&mut of_params), shared(&mut of_rows));
    let columns = broadcast.slabs_with_sums(
        if by_params && plan.params { g.layout.n_params } else { 0 },
        &|part, columns| {
            E::with_registers(RowPart {
                g,
                plan,
                part,
                stats: stats.map(Shared::get),
                own: same.then(|| own.map(Shared::get)),
                rows: rows.map(Shared::get),
                columns,
            });
        },
    );
    if by_params {
        return [columns, of_stats];
    }
    if !same && plan.params {
        let mut row = 0;
        broadcast.walk(0..broadcast.rows(), |s, p, _| {
            of_params[0][p] += of_rows[0][row];
            of_params[1][p] += of_rows[1][row] * g.stats.scale[s].real();
            row += 1;
        });
    }
    [of_params, of_stats]
}

/// A part of the gradients, and the destinations of its sums: of `gy`, and of `gy` times the normalized element.
struct RowPart<'a, E: Stored> {
    /// The operands.
    g: &'a Gradients<'a, E>,
    /// The requested gradients.
    plan: GradientPlan<E>,
    /// The part of the array.
    part: &'a BroadcastLayout,
    /// The sums of each statistic, of `gy gamma`.
    stats: [*mut f64; 2],
    /// The sums of each parameter, if each has the same elements as a statistic.
    own: Option<[*mut f64; 2]>,
    /// The sums of each row, without the scale, if neighbours have the same parameters.
    rows: [*mut f64; 2],
    /// The sums of each column, if neighbours have different parameters.
    columns: [*mut f64; 2],
}

impl<E: Stored> Work<E::Wide> for RowPart<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let by_params = self.part.last_varies().1;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.plan.sums || (self.plan.params && !by_params) {
                if by_params { self.sums_by_column::<V>() } else { self.sums_by_row::<V>() }
            }
            match by_params {
                true => self.write_by_column::<V>(),
                false => self.write_by_row::<V>(),
            }
        }
    }
}

impl<E: Stored> RowPart<'_, E> {
    /// The addresses of a row in `x` and in `gy`.
    #[inline(always)]
    unsafe fn row(&self, i: usize) -> (*const E, *const E) {
        // SAFETY: the part lies within both. So below.
        unsafe { (self.g.x.as_ptr().add(i), self.g.gy.as_ptr().add(i)) }
    }

    /// Sums of rows whose elements have different parameters.
    #[inline(always)]
    unsafe fn sums_by_column<V: Vector<T = E::Wide>>(&self) {
        let (n, stats) = (self.part.width(), self.g.stats.view());
        self.part.walk(
            0..self.part.rows(),
            #[inline(always)]
            // SAFETY: the row and its parameters are there, its statistic is one of the part, and the instructions are
            // there. So below.
            |s, p, i| unsafe {
                let ((x, gy), gamma) = (self.row(i), self.g.gamma.as_ptr().add(p));
                let unit = Unit::<V>::of(stats, s);
                let [even, far] = sums::<V, 2>(
                    n,
                    #[inline(always)]
                    |at| {
                        let g = at.load(gy).mul(at.load(gamma));
                        [g, g.mul(unit.centred(at.load(x)))]
                    },
                );
                *self.stats[0].add(s) += even;
                *self.stats[1].add(s) += far * stats.scale[s].real();
            },
        );
    }

    /// Sums of rows whose elements have the same parameters.
    #[inline(always)]
    unsafe fn sums_by_row<V: Vector<T = E::Wide>>(&self) {
        let (n, stats) = (self.part.width(), self.g.stats.view());
        self.part.walk(
            0..self.part.rows(),
            #[inline(always)]
            // SAFETY: as above.
            |s, p, i| unsafe {
                let (x, gy) = self.row(i);
                let unit = Unit::<V>::of(stats, s);
                let [even, far] = sums::<V, 2>(
                    n,
                    #[inline(always)]
                    |at| {
                        let g = at.load(gy);
                        [g, g.mul(unit.centred(at.load(x)))]
                    },
                );
                let (gamma, scale) = (self.g.gamma[p], stats.scale[s].real());
                let mut of_stat = [even * gamma.real(), far * gamma.real()];
                if !gamma.real().is_finite() {
                    // An infinite factor of each term, not of the sum: infinities of both signs add up to NaN.
                    let gamma = V::all(gamma);
                    of_stat = sums::<V, 2>(
                        n,
                        #[inline(always)]
                        |at| {
                            let g = at.load(gy).mul(gamma);
                            [g, g.mul(unit.centred(at.load(x)))]
                        },
                    );
                }
                *self.stats[0].add(s) += of_stat[0];
                *self.stats[1].add(s) += of_stat[1] * scale;
                if let Some(own) = self.own {
                    *own[0].add(p) += even;
                    *own[1].add(p) += far * scale;
                } else if self.plan.params {
                    *self.rows[0].add(i / n) = even;
                    *self.rows[1].add(i / n) = far;
                }
            },
        );
    }

    /// [`Gradients::pulls`] of statistic `s`.
    #[inline(always)]
    unsafe fn pulls(&self, s: usize) -> [E::Wide; 2] {
        // SAFETY: as above.
        self.g.pulls(s, self.stats.map(|sums| unsafe { *sums.add(s) }))
    }

    /// Writes the gradients of rows whose elements have the same parameters.
    #[inline(always)]
    unsafe fn write_by_row<V: Vector<T = E::Wide>>(&self) {
        let Some((gx, accumulate)) = self.plan.gx else { return };
        let (n, first, stats) = (self.part.width(), self.part.first_a(), self.g.stats.view());
        // SAFETY: as above.
        let pulls: List<_> = (first..first + self.part.span()).map(|s| unsafe { self.pulls(s) }).collect();
        self.part.walk(
            0..self.part.rows(),
            #[inline(always)]
            // SAFETY: as above.
            |s, p, i| unsafe {
                let ((x, gy), gx) = (self.row(i), gx.get().add(i));
                let (unit, scale) = (Unit::<V>::of(stats, s), stats.scale[s]);
                let by_gy = V::all(self.g.gamma[p] * scale);
                if self.g.given {
                    return each::<V>(
                        n,
                        #[inline(always)]
                        |at| at.put(at.load(gy).mul(by_gy), gx, accumulate),
                    );
                }
                let [even, far] = pulls[s - first];
                let (even, far) = (V::all(even * scale), V::all(far * scale * scale));
                each::<V>(
                    n,
                    #[inline(always)]
                    |at| {
                        let pull = unit.centred(at.load(x)).mul(far).add(even);
                        at.put(at.load(gy).mul(by_gy).sub(pull), gx, accumulate);
                    },
                );
            },
        );
    }

    /// Writes the gradients of rows whose elements have different parameters, and sums the gradients of the
    /// parameters.
    #[inline(always)]
    unsafe fn write_by_column<V: Vector<T = E::Wide>>(&self) {
        if self.plan.gx.is_none() && !self.plan.params {
            return;
        }
        let (n, plan_x) = (self.part.width(), self.plan.gx.is_some());
        let mut together = Together { rows: [GradientRow::default(); TOGETHER], n: 0, p: 0 };
        // Within a part, which has few rows, columns are summed in the precision of the elements.
        let mut buffer = Zeros::<E::Wide>::new(if self.plan.params { 2 * n } else { 0 });
        self.part.walk(
            0..self.part.rows(),
            #[inline(always)]
            // SAFETY: as above.
            |s, p, i| unsafe {
                if together.n == TOGETHER || together.p != p {
                    self.write_together::<V>(&together, &mut buffer);
                    if together.p != p {
                        self.add_columns(together.p, &mut buffer);
                    }
                    (together.n, together.p) = (0, p);
                }
                let ((mean, rest), scale) = (self.g.stats.mean[s], self.g.stats.scale[s]);
                let [even, far] = if plan_x { self.pulls(s) } else { [E::Wide::ZERO; 2] };
                together.rows[together.n] = GradientRow { i, mean, rest, scale, even, far };
                together.n += 1;
            },
        );
        // SAFETY: as above.
        unsafe {
            self.write_together::<V>(&together, &mut buffer);
            self.add_columns(together.p, &mut buffer);
        }
    }

    /// Writes the gradients of some rows, and adds to the sums of each column.
    #[inline(always)]
    unsafe fn write_together<V: Vector<T = E::Wide>>(
        &self,
        together: &Together<E::Wide>,
        buffer: &mut [E::Wide],
    ) {
        let (n, rows) = (self.part.width(), &together.rows[..together.n]);
        // SAFETY: as above, and the buffer has two sums for each column.
        unsafe {
            let (by_beta, by_gamma) = (buffer.as_mut_ptr(), buffer.as_mut_ptr().wrapping_add(n));
            let gamma = self.g.gamma.as_ptr().add(together.p);
            // By value, so that the loop need not load the fields again for each register.
            let ((x, gy), given, plan) = (self.row(0), self.g.given, self.plan);
            each::<V>(
                n,
                #[inline(always)]
                |at| {
                    let gamma = at.load(gamma);
                    let mut sums = [V::zero(); 2];
                    for row in rows {
                        let g = at.load(gy.add(row.i));
                        let unit = at
                            .load(x.add(row.i))
                            .sub(V::all(row.mean))
                            .sub(V::all(row.rest))
                            .mul(V::all(row.scale));
                        sums = [sums[0].add(g), sums[1].add(g.mul(unit))];
                        if let Some((gx, accumulate)) = plan.gx {
                            let mut v = g.mul(gamma);
                            if !given {
                                v = v.sub(unit.mul(V::all(row.far)).add(V::all(row.even)));
                            }
                            at.put(v.mul(V::all(row.scale)), gx.get().add(row.i), accumulate);
                        }
                    }
                    if plan.params {
                        at.put(sums[0], by_beta, true);
                        at.put(sums[1], by_gamma, true);
                    }
                },
            );
        }
    }

    /// Adds the sums of columns to the sums of parameters from `p` on, and resets them.
    #[inline(always)]
    unsafe fn add_columns(&self, p: usize, buffer: &mut [E::Wide]) {
        if self.plan.params {
            for (to, sums) in self.columns.iter().zip(buffer.chunks_exact_mut(self.part.width().max(1))) {
                for (c, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: as above.
                    unsafe { *to.add(p + c) += sum.real() };
                    *sum = E::Wide::ZERO;
                }
            }
        }
    }
}

/// Rows with the same parameters, which begin with number `p`.
struct Together<T> {
    /// The rows.
    rows: [GradientRow<T>; TOGETHER],
    /// Elements of a row.
    n: usize,
    /// The number of the first parameter.
    p: usize,
}

/// A row that begins at `i`, its statistics, and the contributions of these to the gradient of its elements.
#[derive(Clone, Copy, Default)]
struct GradientRow<T> {
    /// The index of the first element.
    i: usize,
    /// The mean, rounded.
    mean: T,
    /// The rounding error of the mean.
    rest: T,
    /// The factor of the differences from the mean.
    scale: T,
    /// Subtracted from the gradient of every element.
    even: T,
    /// The factor of the normalized element in what is subtracted.
    far: T,
}
