//! Convolution with weights that are scaled by image and input channel. The weight is scaled rather than the input,
//! because it is smaller.

use std::sync::OnceLock;

use super::forward;
use super::geometry::Geometry;
use super::pointwise;
use crate::array::OutOfMemory;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::Shared;
use crate::kernels::{Float, scratch};

/// Computes the output. The weight of image `n` is `w` times `scale[n, c]` for input channel `c`.
///
/// # Errors
/// As [`forward`].
pub fn modulated<T: Float>(
    g: &Geometry,
    x: &[T],
    w: &[T],
    scale: &[T],
    y: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    g.check(x.len(), w.len(), y.len());
    assert!(scale.len() == g.images * g.channels, "{} scales for {g:?}", scale.len());
    let one = Geometry { images: 1, ..g.clone() };
    let (input, output) = (g.channels * g.area(), g.maps * g.positions());
    let (to, failed) = (Shared::new(y.as_mut_ptr()), OnceLock::new());
    pointwise::each(g.images, |image| {
        let scale = &scale[image * g.channels..][..g.channels];
        // SAFETY: each image has its own part of the output.
        let y = unsafe { std::slice::from_raw_parts_mut(to.get().add(image * output), output) };
        let ran = scratch::with(w.len(), |scaled: &mut [T]| {
            g.scale(w, scale, scaled);
            forward(&one, &x[image * input..][..input], &*scaled, y, epilogue)
        });
        if let Err(error) = ran {
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

impl Geometry {
    /// Multiplies a weight by the scale of each input channel.
    fn scale<T: Float>(&self, w: &[T], scale: &[T], to: &mut [T]) {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let taps = if self.channel_last { 1 } else { self.taps() };
        vectorised(
            #[inline(always)]
            move || {
                let rows =
                    w.chunks_exact(channels.max(1) * taps).zip(to.chunks_exact_mut(channels.max(1) * taps));
                // With channels last, each tap of an output channel is a row.
                let of_map = w.len() / self.maps.max(1) / (channels * taps).max(1);
                for (i, (w, to)) in rows.enumerate() {
                    let scale = &scale[i / of_map / maps * channels..][..channels];
                    if taps == 1 {
                        to.iter_mut().zip(w).zip(scale).for_each(|((to, w), s)| *to = *w * *s);
                        continue;
                    }
                    for ((to, w), s) in to.chunks_exact_mut(taps).zip(w.chunks_exact(taps)).zip(scale) {
                        to.iter_mut().zip(w).for_each(|(to, w)| *to = *w * *s);
                    }
                }
            },
        );
    }
}
