//! The gradient of a strided input, channels first. Each phase of the stride is a product with its own taps. The
//! phases read the same packed planes, and rows of their results are interleaved when they are stored.

use std::ops::Range;

use smallvec::SmallVec;

use super::column_order::{ColumnOrder, tiles};
use super::nchw::{for_each_block, pack_images};
use super::packed_planes::{PlaneBlock, PlaneLayout, SLACK, copy_rows, padded_stride};
use super::stride_layout::StridePhases;
use super::{Weights, pack_weights};
use crate::array::OutOfMemory;
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::descriptor::Descriptor;
use crate::kernels::epilogue::{Activation, Epilogue, Tail};
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::{Vector, Work};

/// The largest number of phases for which a run allocates nothing on the heap. A stride of four along two axes has as
/// many.
const FEW: usize = 16;
/// The number of results that stay in the second-level cache until they are stored.
const RESULTS: usize = 1 << 15;

/// Computes the gradient. There is a descriptor for each phase.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(in super::super) unsafe fn run<T: Float>(
    sum: &Correlation<'_, T>,
    descriptors: &[Descriptor],
    phases: &StridePhases,
) -> Result<(), OutOfMemory> {
    let weights = descriptors
        .iter()
        .map(|descriptor| pack_weights(&Correlation { descriptor, ..*sum }))
        .collect::<Result<SmallVec<[_; FEW]>, _>>()?;
    let (g, layout) = (sum.g, &phases.layout);
    // The products of one target and one source in all phases of an image.
    let products = descriptors.iter().map(|d| d.window.positions() * d.window.taps.len()).sum();
    for_each_block(sum, layout, products, |block, group, targets| {
        let task = PhaseBlock { sum, phases, descriptors, weights: &weights, block, group, targets };
        // SAFETY: guaranteed by the caller, and each task has its own part of the target.
        unsafe { task.run() };
    });
    if layout.columns.parts() > 1 && sum.epilogue.tail.rows.is_some() {
        let n = g.images * g.channels * g.area();
        // SAFETY: the target has this many elements, and all of them are written.
        let all = unsafe { std::slice::from_raw_parts_mut(sum.target, n) };
        Tail { activation: Activation::Identity, ..sum.epilogue.tail }.finish_all(all);
    }
    Ok(())
}

/// The order of the columns of the products of a block, for this number of rows of positions and of targets.
///
/// Separate rows fill tiles worse than rows with the gaps between them, which fill them worse than copies without
/// gaps. Tall products share the cost of a copy.
fn columns<T: Float>(
    layout: &PlaneLayout,
    depth: usize,
    block: &PlaneBlock,
    rows: usize,
    targets: usize,
) -> ColumnOrder {
    let (width, all) = (block.columns.len(), layout.len(block));
    let by_row = rows * tiles::<T>(width) * depth;
    let with_gaps = tiles::<T>(all) * depth;
    let copies = rows * depth / targets.div_ceil(kernels::<T>().tallest());
    let copied = tiles::<T>(rows * width) * depth + copies;
    if copied < by_row.min(with_gaps) && width <= SLACK && !layout.in_place {
        ColumnOrder::CopiedFromPlanes
    } else if by_row <= with_gaps {
        ColumnOrder::ByRow
    } else {
        ColumnOrder::WithGaps
    }
}

/// Some targets of a block of positions, for all phases.
struct PhaseBlock<'a, T: 'static> {
    /// The operands.
    sum: &'a Correlation<'a, T>,
    /// The planes that all phases read.
    phases: &'a StridePhases,
    /// The windows of the phases.
    descriptors: &'a [Descriptor],
    /// The weights of each phase.
    weights: &'a [Weights<T>],
    /// The positions.
    block: PlaneBlock,
    /// The group of channels.
    group: usize,
    /// The targets of the group.
    targets: Range<usize>,
}

impl<T: Float> PhaseBlock<'_, T> {
    /// Computes the block.
    ///
    /// # Safety
    /// As [`run`].
    unsafe fn run(&self) {
        let Self { sum, phases, descriptors, ref block, group, ref targets, .. } = *self;
        let StridePhases { layout, turns, .. } = phases;
        let (sources, starts) = (sum.sources.channels, layout.row_starts(block));
        let taps = descriptors.iter().map(|d| d.window.taps.len()).max().unwrap_or(0);
        let order = columns::<T>(layout, sources * taps, block, starts.len(), targets.len());
        let (width, copied) = (block.columns.len(), order.are_copied());
        let n = if copied { starts.len() * width } else { layout.len(block) };
        let stride = padded_stride(n);
        let chunks = sources.div_ceil(layout.chunk).max(1);
        // With several chunks of sources, each part of the targets would pack them again.
        let most = if chunks > 1 { targets.len() } else { RESULTS / (turns * stride) };
        let parts = targets.len().div_ceil(most.max(kernels::<T>().tallest()));
        let parts = EvenSplit::new(targets.len(), parts);
        let of_turn = parts.part(0).len() * stride;
        let of_copied = if copied { layout.chunk * taps * stride } else { 0 };
        let capacity = layout.capacity();
        scratch::with(capacity + of_copied + turns * of_turn + SLACK, |memory: &mut [T]| {
            let (planes, memory) = memory.split_at_mut(capacity);
            let (results, together) = memory.split_at_mut(turns * of_turn);
            let mut packed = None;
            for first in (0..descriptors.len()).step_by(*turns) {
                for part in (0..parts.parts()).map(|i| parts.part(i)) {
                    let part = targets.start + part.start..targets.start + part.end;
                    for i in 0..chunks {
                        let channels = i * layout.chunk..sources.min((i + 1) * layout.chunk);
                        if !layout.in_place && packed != Some(i) {
                            // SAFETY: the planes hold a chunk.
                            unsafe { pack_images(sum, layout, block, group, channels.clone(), planes) };
                            packed = Some(i);
                        }
                        let from = match layout.in_place {
                            true => sum
                                .source(block.images.start, group, channels.start)
                                .wrapping_add(layout.origin(block)),
                            false => planes.as_ptr(),
                        };
                        for (turn, results) in results.chunks_exact_mut(of_turn).enumerate() {
                            let (phase, k) = (first + turn, channels.len() * self.taps(first + turn));
                            let table = &phases.tables[phase][..k];
                            let mut b = (from, 0, Table::OfRight(table));
                            if copied {
                                let to = together.as_mut_ptr();
                                // SAFETY: the rows are within the planes, and the memory holds them and the excess
                                // of the copies.
                                unsafe { copy_rows(table, from, &starts, width, to, stride) };
                                b = (to.cast_const(), stride, Table::None);
                            }
                            let multiply = |at: usize, n: usize| {
                                let to = results.as_ptr().cast_mut().wrapping_add(at);
                                // SAFETY: the columns are within the planes and the results.
                                unsafe { self.multiply((phase, &channels, &part), b, at, n, (to, stride)) };
                            };
                            match order {
                                ColumnOrder::ByRow => starts.iter().for_each(|at| multiply(*at, width)),
                                _ => multiply(0, n),
                            }
                        }
                    }
                    let gap = if copied { None } else { Some(&starts[..]) };
                    // SAFETY: these are results of all positions, and the elements belong to this task.
                    unsafe { self.store(first, part, results, (of_turn, stride), gap) };
                }
            }
        });
        if layout.columns.parts() == 1 && sum.epilogue.tail.rows.is_some() {
            // SAFETY: all phases of these rows are stored.
            unsafe { self.finish() };
        }
    }

    /// The number of taps of a phase.
    fn taps(&self, phase: usize) -> usize {
        self.descriptors[phase].window.taps.len()
    }

    /// Multiplies the weights of a phase and `n` columns of the right matrix from column `at` on.
    ///
    /// # Safety
    /// As [`PanelProduct::run`].
    unsafe fn multiply(
        &self,
        (phase, channels, targets): (usize, &Range<usize>, &Range<usize>),
        (b, b_row, table): (*const T, usize, Table<'_>),
        at: usize,
        n: usize,
        (c, c_row): (*mut T, usize),
    ) {
        let (weights, taps, sources) = (&self.weights[phase], self.taps(phase), self.sum.sources.channels);
        let first = weights.group * self.group + targets.start * sources * taps + channels.start * taps;
        let product = PanelProduct {
            kernels: self.sum.kernels,
            m: targets.len(),
            n,
            k: channels.len() * taps,
            a: MatrixOperand { p: weights.p.wrapping_add(first), row: (sources * taps) as isize, col: 1 },
            b: Panels { p: b.wrapping_add(at), row: b_row, next: kernels::<T>().panel() },
            table,
            batch: ONCE,
            c,
            c_row,
            epilogue: Epilogue::plain(channels.start > 0),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { product.run() };
    }

    /// Stores the results of the phases from `first` on that share rows of the target. Rows start at the elements of
    /// `gaps`, or have no gaps between them.
    ///
    /// # Safety
    /// The results must be there, and the elements of the target must belong to this task.
    unsafe fn store(
        &self,
        first: usize,
        targets: Range<usize>,
        results: &[T],
        (of_turn, stride): (usize, usize),
        gaps: Option<&[usize]>,
    ) {
        let Self { sum, phases, ref block, group, .. } = *self;
        let (width, turns) = (block.columns.len(), phases.turns);
        let window = &self.descriptors[first].window;
        // For each row: its start in the results, and its first element in an image.
        let mut rows = List::with_capacity(64);
        let mut position = 0;
        phases.layout.each_row(block, |image, row, column, _| {
            let at = gaps.map_or(position * width, |gaps| gaps[position]);
            if let Some(own) = phases.row_of(window, row) {
                rows.push((at, image, window.targets[own] + column * window.apart));
            }
            position += 1;
        });
        let lengths: SmallVec<[usize; 4]> = self.descriptors[first..first + turns]
            .iter()
            .map(|d| d.window.width.min(block.columns.end).saturating_sub(block.columns.start))
            .collect();
        for (i, target) in targets.enumerate() {
            let end = sum.end(group, target);
            T::in_registers(InterleaveRows {
                rows: &rows,
                results: &results[i * stride..],
                of_turn,
                lengths: &lengths,
                to: |image: usize, element: usize| {
                    sum.target.wrapping_add(sum.target_index(image, group, target) + element)
                },
                apart: window.apart,
                end,
            });
        }
    }

    /// Applies the tail of the epilogue to all elements of the block, which are adjacent in each image.
    ///
    /// # Safety
    /// The elements must have been written, and belong to this task.
    unsafe fn finish(&self) {
        let Self { sum, ref block, group, ref targets, .. } = *self;
        let g = sum.g;
        let rows = if g.input.len() == 1 {
            0..g.area()
        } else {
            let inner = g.area() / g.input[0];
            let end = (block.rows.end * g.stride[0]).min(g.input[0]);
            block.rows.start * g.stride[0] * inner..end * inner
        };
        for image in block.images.clone() {
            let at = sum.target(image, group, targets.start).wrapping_add(rows.start);
            // SAFETY: guaranteed by the caller.
            unsafe { sum.epilogue.tail.finish(at, sum.targets.channel, targets.len(), rows.len()) };
        }
    }
}

/// Stores rows of results of a target. Element `i` of a row is the result of phase `i % n` at position `i / n`.
struct InterleaveRows<'a, T, F> {
    /// For each row: its start in the results, its image, and its first element there.
    rows: &'a [(usize, usize, usize)],
    /// The results of the target.
    results: &'a [T],
    /// The distance from the results of a phase to the results of the next.
    of_turn: usize,
    /// The number of positions of each phase in a row.
    lengths: &'a [usize],
    /// The address of an element of an image.
    to: F,
    /// The distance of elements of a phase.
    apart: usize,
    /// The epilogue.
    end: Epilogue<'a, T>,
}

impl<T: Float, F: Fn(usize, usize) -> *mut T> Work<T> for InterleaveRows<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { rows, results, of_turn, lengths, to, apart, end } = self;
        for (at, image, element) in rows {
            let to = to(*image, *element);
            let from = |turn: usize| results[turn * of_turn + at..][..lengths[turn]].as_ptr();
            // SAFETY: masks keep within the results and the row of the target.
            unsafe {
                match *lengths {
                    [n] => (0..n).step_by(V::WIDTH).for_each(|j| {
                        end.store(V::load_masked(from(0).add(j), V::first(n - j)), to.add(j), n - j);
                    }),
                    [a, b] => (0..a).step_by(V::WIDTH).for_each(|j| {
                        let x = V::load_masked(from(0).add(j), V::first(a - j));
                        let y = V::load_masked(from(1).wrapping_add(j), V::first(b.saturating_sub(j)));
                        let (n, (low, high)) = (a + b - 2 * j, V::weave(x, y));
                        end.store(low, to.add(2 * j), n);
                        end.store(high, to.wrapping_add(2 * j + V::WIDTH), n.saturating_sub(V::WIDTH));
                    }),
                    _ => (0..lengths.len()).for_each(|turn| {
                        let from = std::slice::from_raw_parts(from(turn), lengths[turn]);
                        end.store_strided(from, to.wrapping_add(turn), apart);
                    }),
                }
            }
        }
    }
}
