//! `image_augmentation`: random changes of position, size, angle, aspect, brightness, contrast, and noise.

use crate::array::Shape;
use crate::kernels::random::{BLOCK, PhiloxKey};
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Columns};
use crate::kernels::{Float, map::GRAIN};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ImageAugmentation>()];

op! {
    /// Random changes of images, different for each: scale, crop, rotation, flips, distortion, brightness, contrast and
    /// noise.
    ///
    /// Output pixels are interpolated between four neighbours. Outside of the image, its border is repeated. The
    /// gradient is zero.
    ///
    /// Args:
    ///     x: Images, shape (..., channels, height, width), or one image of shape (height, width).
    ///     shape: Lengths of at least the last two axes of the output. The number of channels cannot change. By default
    ///         the shape of `x`.
    ///     pad: Height and width of the padding on each side before the crop.
    ///     min_scale: Least scale, positive.
    ///     max_scale: Largest scale; its logarithm is drawn uniformly.
    ///     angle: Largest angle of rotation in either direction, in radians.
    ///     aspect_ratio: Largest ratio of the scales of width and height, in either direction. Positive.
    ///     distortion: Largest strength of a lens distortion, not negative.
    ///     flip_lr: Flip half of the images from left to right.
    ///     flip_ud: Flip half of the images upside down.
    ///     brightness: Largest number to add or subtract.
    ///     brightness_each: Draw brightness for each channel; if off, for each image.
    ///     contrast: Largest factor of contrast, positive. The least factor is its inverse. The logarithm is drawn
    ///         uniformly.
    ///     contrast_center: The number that contrast does not change.
    ///     contrast_each: Draw contrast for each channel; if off, for each image.
    ///     noise: Largest standard deviation of the normally distributed noise of an image.
    ///     seed: Seed of a separate random sequence; if negative, the library's sequence is used.
    ///
    /// Returns:
    ///     Array of the shape of `x` but for the last axes.
    ///
    /// Raises:
    ///     ShapeError: If `x` has fewer than two axes or no elements in an image.
    ///     ArgumentError: If `shape` or `pad` does not fit, or a number is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray((8, 3, 32, 32))
    ///     >>> F.image_augmentation(x, shape=(3, 28, 28), angle=0.1, flip_lr=True).shape
    ///     (8, 3, 28, 28)
    /// ```
    ImageAugmentation = image_augmentation(x; shape: Option<Vec<i64>> = None, pad: Vec<i64> = [0, 0],
        min_scale: f64 = 1.0, max_scale: f64 = 1.0, angle: f64 = 0.0, aspect_ratio: f64 = 1.0, distortion: f64 = 0.0,
        flip_lr: bool = false, flip_ud: bool = false, brightness: f64 = 0.0, brightness_each: bool = false,
        contrast: f64 = 1.0, contrast_center: f64 = 0.0, contrast_each: bool = false, noise: f64 = 0.0, seed: i64 = -1)
}

/// Random numbers that are drawn for an image, without the numbers for its channels and its noise.
const DRAWS: usize = 11;

/// Sizes of images before and after.
struct ImageSizes {
    /// The number of images.
    images: usize,
    /// The number of channels of an image.
    channels: usize,
    /// Height and width before.
    x: [usize; 2],
    /// Height and width after.
    y: [usize; 2],
}

/// The affine map and the tones for one image.
#[derive(Clone, Copy)]
struct Change {
    /// The position in the input of the first element of the output.
    start: [f64; 2],
    /// Step in the input, along width and height, for one column of the output.
    right: [f64; 2],
    /// Step in the input, along width and height, for one row of the output.
    down: [f64; 2],
    /// The strength of the lens distortion.
    distortion: f64,
    /// The deviation of the noise.
    noise: f64,
}

impl ImageAugmentation {
    /// Sizes of the images and the output shape, after checks.
    fn sizes(&self, x: &Shape) -> Result<(ImageSizes, Shape)> {
        let op = "image_augmentation";
        let n = x.ndim();
        if n < 2 || x[n - 1] == 0 || x[n - 2] == 0 {
            return Err(Error::shape(op, "images of height and width", [x]));
        }
        let mut y = x.clone();
        if let Some(given) = &self.shape {
            let fits = (2..=n).contains(&given.len());
            let first = n - given.len().min(n);
            let leads = |(axis, d): (usize, &i64)| axis >= n - 2 || *d == x[axis] as i64;
            if !fits || !(first..).zip(given).all(leads) || given.iter().any(|d| !(0..1 << 31).contains(d)) {
                let expected =
                    format!("lengths of the last axes of {x}, of which height and width may differ");
                return Err(Error::argument(op, "shape", expected, format!("{given:?}")));
            }
            (first..).zip(given).for_each(|(axis, d)| y[axis] = *d as usize);
        }
        y.checked_size()?;
        let channels = if n > 2 { x[n - 3] } else { 1 };
        let images = if n > 3 { x[..n - 3].iter().product() } else { 1 };
        Ok((ImageSizes { images, channels, x: [x[n - 2], x[n - 1]], y: [y[n - 2], y[n - 1]] }, y))
    }

    /// The change for random numbers `u` between 0 and 1.
    fn change(&self, sizes: &ImageSizes, u: &[f64]) -> Change {
        let [h, w] = sizes.x.map(|d| d as f64);
        let [out_h, out_w] = sizes.y.map(|d| d as f64);
        let (pad_y, pad_x) = (self.pad[0] as f64, self.pad[1] as f64);
        let scale = self.min_scale * (u[0] * (self.max_scale / self.min_scale).ln()).exp();
        let wider = ((u[1] - 0.5) * self.aspect_ratio.ln()).exp();
        let (scale_x, scale_y) = (scale * wider, scale / wider);
        let (sin, cos) = ((2.0 * u[2] - 1.0) * self.angle).sin_cos();
        // The centre of the crop in the scaled image.
        let (cx, cy) = ((out_w - 1.0) * 0.5, (out_h - 1.0) * 0.5);
        let x = u[3] * ((w + 2.0 * pad_x) * scale_x - out_w) + cx;
        let y = u[4] * ((h + 2.0 * pad_y) * scale_y - out_h) + cy;
        let side = |flips: bool, u: f64| if flips && u < 0.5 { -1.0 } else { 1.0 };
        let (lr, ud) = (side(self.flip_lr, u[5]), side(self.flip_ud, u[6]));
        let right = [lr * cos / scale_x, ud * sin / scale_x];
        let down = [-lr * sin / scale_y, ud * cos / scale_y];
        let start = [
            x / scale_x - (right[0] * cx + down[0] * cy) - pad_x,
            y / scale_y - (right[1] * cx + down[1] * cy) - pad_y,
        ];
        let distortion = ((2.0 * u[9] - 1.0) * self.distortion).exp() - 1.0;
        Change { start, right, down, distortion, noise: u[10] * self.noise }
    }

    /// For a channel: the number to add, the factor, and the number to add afterwards.
    fn tones(&self, image: &[f64], channel: &[f64]) -> [f64; 3] {
        let u = |each: bool, i: usize| if each { channel[i] } else { image[7 + i] };
        let brightness = (2.0 * u(self.brightness_each, 0) - 1.0) * self.brightness;
        let contrast = ((2.0 * u(self.contrast_each, 1) - 1.0) * self.contrast.ln()).exp();
        [brightness - self.contrast_center, contrast, self.contrast_center]
    }
}

/// A bilinear sample: offset of the upper left pixel, offsets to its neighbours, and weights.
type ImageTap<T> = (usize, usize, usize, T, T);

impl Change {
    /// The sample for element (`row`, `column`) of the output.
    #[inline(always)]
    fn tap<T: Float>(&self, sizes: &ImageSizes, row: usize, column: usize) -> ImageTap<T> {
        let [h, w] = sizes.x;
        let (mut right, mut down) = (column as f64, row as f64);
        if self.distortion != 0.0 {
            let [half_h, half_w] = sizes.y.map(|d| d as f64 * 0.5);
            let (x, y) = ((right - half_w) / half_w, (down - half_h) / half_h);
            let stretch = (1.0 + self.distortion * (x * x + y * y)) / (1.0 + self.distortion);
            (right, down) = (x * stretch * half_w + half_w, y * stretch * half_h + half_h);
        }
        let at = |i: usize, n: usize| {
            let at = self.start[i] + right * self.right[i] + down * self.down[i];
            let at = at.clamp(0.0, (n - 1) as f64);
            let low = at as usize;
            (low, at - low as f64)
        };
        let ((x, share_x), (y, share_y)) = (at(0, w), at(1, h));
        let (next_x, next_y) = (usize::from(x + 1 < w), if y + 1 < h { w } else { 0 });
        (y * w + x, next_x, next_y, T::of(share_x), T::of(share_y))
    }
}

impl Compute for ImageAugmentation {
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        let ints = || Value::Ints(x.get(0).iter().map(|d| *d as i64).collect());
        if arg == "shape" { ints() } else { Value::None }
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let op = "image_augmentation";
        let positive = [
            ("min_scale", self.min_scale),
            ("max_scale", self.max_scale),
            ("aspect_ratio", self.aspect_ratio),
            ("contrast", self.contrast),
        ];
        for (name, v) in positive {
            if !(v > 0.0 && v.is_finite()) {
                return Err(Error::argument(op, name, "a positive number", v));
            }
        }
        for (name, v) in [("distortion", self.distortion), ("noise", self.noise)] {
            if !(v >= 0.0 && v.is_finite()) {
                return Err(Error::argument(op, name, "zero or more", v));
            }
        }
        if self.pad.len() != 2 || self.pad.iter().any(|p| !(0..1 << 31).contains(p)) {
            return Err(Error::argument(op, "pad", "two numbers of zero or more", format!("{:?}", self.pad)));
        }
        one(self.sizes(x.get(0))?.1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (sizes, _) = self.sizes(run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        let size_x = sizes.x[0] * sizes.x[1];
        let each = DRAWS + 2 * sizes.channels;
        let settings = (sizes.images * each).next_multiple_of(BLOCK as usize);
        // Each row of an image has its own noise, so that rows can be computed in any order.
        let row_noise = (sizes.channels * sizes.y[1]).next_multiple_of(BLOCK as usize);
        let noise = if self.noise > 0.0 { sizes.images * sizes.y[0] * row_noise } else { 0 };
        let key = run.random(self.seed, settings + noise);
        let mut drawn = Zeros::<f64>::new(sizes.images * each);
        key.uniform(0.0, 1.0, &mut drawn);
        let changes: List<Change> = drawn.chunks_exact(each).map(|u| self.change(&sizes, u)).collect();
        let [height, width] = sizes.y;
        let row = |image: usize, row: usize, mut y: Columns<'_, T>| {
            let (change, u) = (&changes[image], &drawn[image * each..][..each]);
            let taps: List<ImageTap<T>> = (0..width).map(|column| change.tap(&sizes, row, column)).collect();
            let number = image * height + row;
            let mut noise = Zeros::<T>::new(if change.noise > 0.0 { sizes.channels * width } else { 0 });
            let offset = key.offset + (settings + number * row_noise) as u64;
            PhiloxKey { offset, ..key }.normal(0.0, change.noise, &mut noise);
            for channel in 0..sizes.channels {
                let plane = image * sizes.channels + channel;
                let x = &x[plane * size_x..][..size_x];
                let [add, times, then] = self.tones(u, &u[DRAWS + 2 * channel..]).map(T::of);
                let y = y.row(channel);
                vectorised(
                    #[inline(always)]
                    || {
                        for (y, (at, right, down, share_x, share_y)) in y.iter_mut().zip(&*taps) {
                            let (a, b) = (x[*at], x[at + right]);
                            let (c, d) = (x[at + down], x[at + down + right]);
                            let (above, below) = (a + (b - a) * *share_x, c + (d - c) * *share_x);
                            *y = (above + (below - above) * *share_y + add) * times + then;
                        }
                    },
                );
                y.iter_mut().zip(noise.iter().skip(channel * width)).for_each(|(y, n)| *y = *y + *n);
            }
        };
        let work = (sizes.channels * width * 8).max(1);
        let planes = [sizes.channels, height * width];
        threads::columns_mut([y], planes, width, (GRAIN / work).max(1), |image, some, [y]| {
            row(image, some.start / width, y);
        });
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    const IS_RANDOM: bool = true;
}
