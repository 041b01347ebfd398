//! Depthwise convolution of elements of 16 bits: parts that fit the cache are widened, and computed in `f32`.

use super::geometry::Geometry;
use super::{forward as wide_forward, input_gradient, weight_gradient};
use crate::array::OutOfMemory;
use crate::kernels::Stored;
use crate::kernels::channel_sums::add_sums;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::sixteen_bits::{in_numbers, wide_numbers};

/// Elements of the input or of the output that are widened at a time.
const WIDENED: usize = 1 << 16;

/// A part of the images, or of the channels of an image.
struct DepthwisePart {
    /// The geometry of the part.
    g: Geometry,
    /// The number of planes of the input before the part.
    first: usize,
    /// The first channel.
    channel: usize,
}

impl DepthwisePart {
    /// The number of maps of a channel.
    fn maps(&self) -> usize {
        self.g.maps / self.g.group
    }

    /// Its elements of an array that has `n` for each channel of each image.
    fn of<'a, T>(&self, all: &'a [T], n: usize) -> &'a [T] {
        &all[self.first * n..][..self.g.images * self.g.group * n]
    }

    /// As [`DepthwisePart::of`], to be written.
    fn of_mut<'a, T>(&self, all: &'a mut [T], n: usize) -> &'a mut [T] {
        &mut all[self.first * n..][..self.g.images * self.g.group * n]
    }

    /// The elements of its input.
    fn input<'a, T>(&self, x: &'a [T]) -> &'a [T] {
        self.of(x, self.g.area())
    }

    /// The elements of its output.
    fn output<'a, T>(&self, y: &'a [T]) -> &'a [T] {
        self.of(y, self.maps() * self.g.positions())
    }

    /// The range of an array that has `n` elements for each map.
    fn range(&self, n: usize) -> std::ops::Range<usize> {
        let n = n * self.maps();
        self.channel * n..(self.channel + self.g.group) * n
    }
}

/// Calls `work` for all parts, in order. Each has at least two channels if there are, since other algorithms serve one.
fn in_parts(
    g: &Geometry,
    mut work: impl FnMut(&DepthwisePart) -> Result<(), OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let maps = g.maps / g.group;
    let plane = g.area().max(maps * g.positions()).max(1);
    let images = (WIDENED / (plane * g.group)).max(1);
    let cuts =
        if plane * g.group <= WIDENED { 1 } else { g.group / (WIDENED / plane).clamp(2, g.group.max(2)) };
    let cuts = cuts.max(1);
    let mut part = DepthwisePart { g: g.clone(), first: 0, channel: 0 };
    for image in (0..g.images).step_by(images) {
        for cut in 0..cuts {
            let [start, end] = [cut, cut + 1].map(|cut| g.group * cut / cuts);
            (part.first, part.channel) = (image * g.group + start, start);
            part.g.images = images.min(g.images - image);
            (part.g.group, part.g.channels, part.g.maps) = (end - start, end - start, (end - start) * maps);
            work(&part)?;
        }
    }
    Ok(())
}

/// As [`super::forward`] with a bias for each map.
///
/// # Errors
/// As [`super::forward`].
pub fn forward<E: Stored>(
    g: &Geometry,
    x: &[E],
    w: &[E::Wide],
    bias: Option<&[E::Wide]>,
    y: &mut [E],
) -> Result<(), OutOfMemory> {
    in_parts(g, |part| {
        let outputs = part.maps() * part.g.positions();
        in_numbers(part.input(x), part.of_mut(y, outputs), |x, y| {
            let epilogue = Epilogue { row_bias: bias.map(|bias| &bias[part.range(1)]), ..Epilogue::NONE };
            wide_forward(&part.g, x, &w[part.range(g.taps())], y, epilogue)
        })
    })
}

/// The arrays of a backward run.
pub struct DepthwiseGradients<'a, E: Stored> {
    /// The gradient of the output.
    pub gy: &'a [E],
    /// The weight, and the gradient of the input, which is written.
    pub by_input: Option<(&'a [E::Wide], &'a mut [E])>,
    /// The input, and the gradient of the weight, to which is added.
    pub by_weight: Option<(&'a [E], &'a mut [E::Wide])>,
    /// The gradient of the bias, to which is added.
    pub by_bias: Option<&'a mut [E::Wide]>,
}

impl<E: Stored> DepthwiseGradients<'_, E> {
    /// Computes the gradients.
    ///
    /// # Errors
    /// As [`super::forward`].
    pub fn run(mut self, g: &Geometry) -> Result<(), OutOfMemory> {
        in_parts(g, |part| {
            let of_weight = part.range(g.taps());
            wide_numbers(part.output(self.gy), |gy| {
                if let Some((w, gx)) = &mut self.by_input {
                    let (w, gx) = (&w[of_weight.clone()], part.of_mut(gx, g.area()));
                    in_numbers(&[], gx, |_, gx| input_gradient(&part.g, gy, w, gx, Epilogue::NONE))?;
                }
                if let Some((x, gw)) = &mut self.by_weight {
                    wide_numbers(part.input(x), |x| {
                        weight_gradient(&part.g, x, gy, &mut gw[of_weight], true)
                    })?;
                }
                if let Some(gb) = &mut self.by_bias {
                    add_sums(gy, &mut gb[part.range(1)], g.positions());
                }
                Ok(())
            })
        })
    }
}
