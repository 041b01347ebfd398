//! Depthwise convolutions: one map per channel.

use super::output::{ColumnTerms, SumOutput};
use super::product::{Blocks, Levels, Positions};
use super::window::ImageWindow;
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::parallel;

/// Writes the outputs of all windows. The weights of each channel are contiguous.
pub fn multiply_each(
    levels: &Levels<'_>,
    weights: &[i8],
    window: &ImageWindow,
    columns: &ColumnTerms<'_>,
    output: &dyn SumOutput,
) {
    let (channels, places) = (window.channels, window.places());
    let n = places.len();
    assert_eq!(weights.len(), n * channels, "weights that have not the shape");
    if channels == 0 {
        return;
    }
    let weight = |place: usize, c: usize| i32::from(weights[c * n + place]) - columns.zero(c);
    let widened: List<i32> = (0..n * channels).map(|i| weight(i / channels, i % channels)).collect();
    let zeros = |c: usize| (0..n).map(|place| weight(place, c)).sum::<i32>().wrapping_mul(levels.zero.into());
    let added: List<i32> = (0..channels).map(|c| columns.bias(c).wrapping_sub(zeros(c))).collect();
    let blocks = Blocks::new(window, channels * output.element());
    parallel(blocks.count(), |i| {
        let block = blocks.get(i);
        let mut frame = List::with_capacity(window.frame_len(&block));
        let origins = window.origins(levels.x, levels.zero, &block, &mut frame);
        let width = window.output[1];
        let first = (block.images.start * window.output[0] + block.lines.start) * width;
        let mut sums: List<i32> = List::repeat(0, channels);
        for (i, at) in Positions::new(&block, width).enumerate() {
            let start = origins.of(at);
            vectorised(
                #[inline(always)]
                || {
                    sums.copy_from_slice(&added);
                    for (place, weights) in places.iter().zip(widened.chunks_exact(channels)) {
                        // SAFETY: the window is within the levels, or within the frame.
                        let x = unsafe { std::slice::from_raw_parts(start.offset(*place), channels) };
                        for ((sum, x), weight) in sums.iter_mut().zip(x).zip(weights) {
                            *sum = sum.wrapping_add(i32::from(*x).wrapping_mul(*weight));
                        }
                    }
                },
            );
            output.write(first + i, &sums);
        }
    });
}
