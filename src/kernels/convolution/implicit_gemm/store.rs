//! Stores sums in the layout of the target.

use std::ops::Range;

use half::bf16;
use smallvec::SmallVec;

use super::packed_planes::{PlaneBlock, PlaneLayout};
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::epilogue::{Activation, Epilogue};
use crate::kernels::simd::{Vector, vectorised};
use crate::kernels::sixteen_bits::bits_of;

/// The epilogue of a plane. The bias is added before the previous value.
impl<T: Float> Epilogue<'_, T> {
    /// Stores up to `n` numbers of a register.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in super::super) unsafe fn store<V: Vector<T = T>>(self, v: V, to: *mut T, n: usize) {
        // SAFETY: guaranteed by the caller, and the mask keeps within the targets.
        unsafe {
            let (mut v, mask) = (v, V::first(n));
            if let Some(bias) = self.row_bias {
                v = v.add(V::all(*bias.get_unchecked(0)));
            }
            if self.accumulate {
                v = v.add(V::load_masked(to, mask));
            }
            self.tail.activation.on(v).store_masked(to, mask);
        }
    }

    /// Stores numbers to elements that are `apart`.
    ///
    /// # Safety
    /// The elements must be valid.
    #[inline(always)]
    pub(in super::super) unsafe fn store_strided(self, from: &[T], to: *mut T, apart: usize) {
        let (accumulate, activation) = (self.accumulate, self.tail.activation);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let bias = self.row_bias.map_or(T::ZERO, |bias| *bias.get_unchecked(0));
            if apart == 1 {
                let to = std::slice::from_raw_parts_mut(to, from.len());
                if accumulate {
                    to.iter_mut().zip(from).for_each(|(t, v)| *t = activation.of(*t + (*v + bias)));
                } else {
                    to.iter_mut().zip(from).for_each(|(t, v)| *t = activation.of(*v + bias));
                }
                return;
            }
            match (accumulate, activation) {
                (true, _) => each_strided(from, to, apart, |to, v| *to = activation.of(*to + (v + bias))),
                (_, Activation::Identity) => each_strided(from, to, apart, |to, v| *to = v + bias),
                _ => each_strided(from, to, apart, |to, v| *to = activation.of(v + bias)),
            }
        }
    }

    /// As [`Epilogue::store_strided`], to elements of bfloat16. Only numbers of `f32` are stored so.
    ///
    /// # Safety
    /// As [`Epilogue::store_strided`].
    #[inline(always)]
    unsafe fn store_narrow(self, from: &[T], to: *mut bf16, apart: usize) {
        let (accumulate, activation) = (self.accumulate, self.tail.activation);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let bias = self.row_bias.map_or(T::ZERO, |bias| *bias.get_unchecked(0));
            let narrow = |v: T| bf16::from_bits(bits_of(v.real() as f32));
            let sum = |to: bf16, v: T| narrow(activation.of(T::of(f64::from(to.to_f32())) + (v + bias)));
            match (accumulate, apart) {
                (false, 1) => {
                    let to = std::slice::from_raw_parts_mut(to, from.len());
                    to.iter_mut().zip(from).for_each(|(t, v)| *t = narrow(activation.of(*v + bias)));
                }
                (false, _) => each_strided(from, to, apart, |to, v| *to = narrow(activation.of(v + bias))),
                (true, _) => each_strided(from, to, apart, |to, v| *to = sum(*to, v)),
            }
        }
    }
}

/// Stores results in the target. Results of neighbouring targets are `row` apart. Positions are in the order of the
/// packed planes, or without gaps if `copied`.
pub(super) unsafe fn store_results<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    targets: Range<usize>,
    results: *const T,
    (row, copied): (usize, bool),
) {
    let (w, width) = (sum.window(), block.columns.len());
    let mut closed = (0..).step_by(width);
    layout.each_row(block, |image, position, column, at| {
        let at = if copied { closed.next().unwrap_or(at) } else { at };
        let first = w.targets[position] + column * w.apart;
        vectorised(
            #[inline(always)]
            || {
                for (i, target) in targets.clone().enumerate() {
                    let index = sum.target_index(image, group, target) + first;
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let from = std::slice::from_raw_parts(results.add(i * row + at), width);
                        let end = sum.end(group, target);
                        match sum.is_narrow {
                            true => end.store_narrow(from, sum.target.cast::<bf16>().add(index), w.apart),
                            false => end.store_strided(from, sum.target.add(index), w.apart),
                        }
                    }
                }
            },
        );
    });
}

/// Applies the tail of the epilogue to stored results. Contiguous rows are processed as one.
pub(super) fn finish_rows<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    targets: Range<usize>,
) {
    let (w, width) = (sum.window(), block.columns.len());
    let mut together: SmallVec<[(usize, Range<usize>); 4]> = SmallVec::new();
    layout.each_row(block, |image, position, column, _| {
        let start = w.targets[position] + column;
        match together.last_mut() {
            Some((same, range)) if *same == image && range.end == start => range.end += width,
            _ => together.push((image, start..start + width)),
        }
    });
    for (image, range) in together {
        let at = sum.target(image, group, targets.start).wrapping_add(range.start);
        // SAFETY: these are elements of the target that belong to this task alone.
        unsafe { sum.epilogue.tail.finish(at, sum.targets.channel, targets.len(), range.len()) };
    }
}

/// Calls `store` for each number and its element, which are `apart`.
#[inline(always)]
unsafe fn each_strided<T: Float, U>(from: &[T], to: *mut U, apart: usize, store: impl Fn(&mut U, T)) {
    // The most common distance is a constant.
    let (of_two, of_any) = from.split_at(if apart == 2 { from.len() } else { 0 });
    // SAFETY: guaranteed by the caller.
    unsafe {
        of_two.iter().enumerate().for_each(|(i, v)| store(&mut *to.add(i * 2), *v));
        of_any.iter().enumerate().for_each(|(i, v)| store(&mut *to.add(i * apart), *v));
    }
}
