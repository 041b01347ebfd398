//! `adaptive_separable_convolution`: a separate kernel for each position, the product of a column and a row.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::threads;
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<AdaptiveSeparableConvolution>()];

op! {
    /// Convolution of images with a separate kernel for each position. All channels share it, and it is the product of
    /// a column and a row: `y[c, h, w] = sum over j, i of v[j, h, w] u[i, h, w] x[c, h + j, w + i]`.
    ///
    /// Args:
    ///     x: Images, shape (n, channels, height, width).
    ///     vertical_kernel: Columns `v`, shape (n, rows, height, width). Only the positions of the output are read.
    ///     horizontal_kernel: Rows `u`, shape (n, columns, height, width). Only the positions of the output are read.
    ///
    /// Returns:
    ///     Array of shape (n, channels, height - rows + 1, width - columns + 1).
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit together, or a kernel is larger than the image.
    ///
    /// Source:
    ///     Niklaus, Mai and Liu, Video Frame Interpolation via Adaptive Separable Convolution, 2017, arXiv:1708.01692.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[[1.0, 2.0, 3.0]]]])
    ///     >>> vertical = nn.NdArray.from_numpy_array(np.ones((1, 1, 1, 3)))
    ///     >>> horizontal = nn.NdArray.from_numpy_array(np.ones((1, 2, 1, 3)))
    ///     >>> F.adaptive_separable_convolution(x, vertical, horizontal).data
    ///     array([[[[3., 5.]]]], dtype=float32)
    /// ```
    AdaptiveSeparableConvolution = adaptive_separable_convolution(x, vertical_kernel, horizontal_kernel)
}

/// Sizes of images, kernels and output.
#[derive(Clone, Copy)]
struct Sizes {
    /// The number of images.
    images: usize,
    /// The number of channels of an image.
    channels: usize,
    /// Height and width of the input.
    x: [usize; 2],
    /// Height and width of the output.
    y: [usize; 2],
    /// Height and width of a kernel.
    kernel: [usize; 2],
    /// Lengths of the last two axes of both kernels.
    places: [[usize; 2]; 2],
}

/// Checks the shapes and returns the sizes.
fn sizes(x: &Shape, v: &Shape, u: &Shape) -> Result<Sizes> {
    let fail = |expected: &str| Err(Error::shape("adaptive_separable_convolution", expected, [x, v, u]));
    if [x, v, u].iter().any(|s| s.ndim() != 4) || v[0] != x[0] || u[0] != x[0] {
        return fail("images and kernels of as many samples, with four axes");
    }
    let kernel = [v[1], u[1]];
    if (0..2).any(|a| kernel[a] == 0 || kernel[a] > x[2 + a]) {
        return fail("kernels of at least one element, no larger than the image");
    }
    let y = [0, 1].map(|a| x[2 + a] - kernel[a] + 1);
    if [v, u].iter().any(|k| (0..2).any(|a| k[2 + a] < y[a])) {
        return fail("a kernel for each place of the output");
    }
    let places = [v, u].map(|k| [k[2], k[3]]);
    Ok(Sizes { images: x[0], channels: x[1], x: [x[2], x[3]], y, kernel, places })
}

impl Sizes {
    /// The offset of element `k` of a kernel (`which`: column or row) for a row of positions.
    fn kernel(&self, which: usize, image: usize, k: usize, row: usize) -> usize {
        let [height, width] = self.places[which];
        ((image * self.kernel[which] + k) * height + row) * width
    }

    /// The offset of a row of the image.
    fn x(&self, image: usize, channel: usize, row: usize) -> usize {
        ((image * self.channels + channel) * self.x[0] + row) * self.x[1]
    }

    /// The offset of a row of the output.
    fn y(&self, image: usize, channel: usize, row: usize) -> usize {
        ((image * self.channels + channel) * self.y[0] + row) * self.y[1]
    }
}

impl Compute for AdaptiveSeparableConvolution {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let s = sizes(x.get(0), x.get(1), x.get(2))?;
        one([s.images, s.channels, s.y[0], s.y[1]])
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1)[1] * x.get(2)[1]
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let s = sizes(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let (x, v, u) = (run.x(0), run.x(1), run.x(2));
        let width = s.y[1];
        let y = run.y(0);
        assert!(y.len() == s.images * s.channels * s.y[0] * width);
        threads::rows_mut(y, width, 1, |line, y| {
            let (image, channel) = (line / s.y[0] / s.channels, line / s.y[0] % s.channels);
            let row = line % s.y[0];
            y.fill(T::ZERO);
            for j in 0..s.kernel[0] {
                let x = &x[s.x(image, channel, row + j)..][..s.x[1]];
                let v = &v[s.kernel(0, image, j, row)..][..width];
                for i in 0..s.kernel[1] {
                    let u = &u[s.kernel(1, image, i, row)..][..width];
                    for (((y, v), u), x) in y.iter_mut().zip(v).zip(u).zip(&x[i..]) {
                        *y = *y + *v * *u * *x;
                    }
                }
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let s = sizes(run.x_shape(0), run.x_shape(1), run.x_shape(2))?;
        let (gy, width) = (run.gy(0), s.y[1]);
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            let (v, u, plane) = (run.x(1), run.x(2), s.x[0] * s.x[1]);
            assert!(gx.len() == s.images * s.channels * plane);
            threads::rows_mut(gx, plane, 1, |at, gx| {
                let (image, channel) = (at / s.channels, at % s.channels);
                threads::in_turn(s.y[0], 1, |rows| {
                    for row in rows {
                        let gy = &gy[s.y(image, channel, row)..][..width];
                        for j in 0..s.kernel[0] {
                            let gx = &mut gx[(row + j) * s.x[1]..][..s.x[1]];
                            let v = &v[s.kernel(0, image, j, row)..][..width];
                            for i in 0..s.kernel[1] {
                                let u = &u[s.kernel(1, image, i, row)..][..width];
                                for (((gx, v), u), g) in gx[i..].iter_mut().zip(v).zip(u).zip(gy) {
                                    *gx = *gx + *v * *u * *g;
                                }
                            }
                        }
                    }
                });
            });
        }
        for which in 0..2 {
            let Some(gk) = run.gx(1 + which).map(Grad::adding) else { continue };
            let (x, other, [height, kernel_width]) = (run.x(0), run.x(2 - which), s.places[which]);
            threads::rows_mut(gk, height * kernel_width, 1, |at, gk| {
                let (image, own) = (at / s.kernel[which], at % s.kernel[which]);
                threads::in_turn(s.y[0], 1, |rows| {
                    for row in rows {
                        let gk = &mut gk[row * kernel_width..][..width];
                        for k in 0..s.kernel[1 - which] {
                            let (j, i) = if which == 0 { (own, k) } else { (k, own) };
                            let other = &other[s.kernel(1 - which, image, k, row)..][..width];
                            for channel in 0..s.channels {
                                let x = &x[s.x(image, channel, row + j) + i..][..width];
                                let gy = &gy[s.y(image, channel, row)..][..width];
                                for (((gk, o), x), g) in gk.iter_mut().zip(other).zip(x).zip(gy) {
                                    *gk = *gk + *o * *x * *g;
                                }
                            }
                        }
                    }
                });
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs([0b110, 0b101, 0b011][gx.min(2)])
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for AdaptiveSeparableConvolution {
    fn is_linear(&self, _: usize) -> bool {
        true
    }
}
