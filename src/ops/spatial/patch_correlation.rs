//! `patch_correlation`: products of patches of two images at relative shifts.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::map::GRAIN;
use crate::kernels::threads;
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<PatchCorrelation>()];

op! {
    /// Correlation of patches of two images at relative shifts:
    /// `y[n, h, w, i, j] = sum over k, l, c of x1[n, h + k, w + l, c] x2[n, h + k + s_i, w + l + s_j, c]`.
    ///
    /// Args:
    ///     x1: Images, shape (n, height, width, channels).
    ///     x2: Images of the same shape.
    ///     patch: Height and width of a patch.
    ///     shift: Largest shift, in either direction, along height and width.
    ///     patch_step: Distance between neighbouring patches.
    ///     shift_step: Distance between neighbouring shifts.
    ///     padding: Zeros above, below, left and right of the images.
    ///
    /// Returns:
    ///     Array of shape (n, rows, columns, shifts along height, shifts along width).
    ///
    /// Raises:
    ///     ShapeError: If the images differ in shape, do not have four axes, or are smaller than a patch.
    ///     ArgumentError: If an argument has the wrong number of values, or a value is out of range.
    ///
    /// Source:
    ///     Fischer et al., FlowNet, 2015, arXiv:1504.06852.
    PatchCorrelation = patch_correlation(x1, x2; patch: Vec<i64> = [1, 1], shift: Vec<i64> = [0, 0],
        patch_step: Vec<i64> = [1, 1], shift_step: Vec<i64> = [1, 1], padding: Vec<i64> = [0, 0, 0, 0])
}

/// Sizes along one of the two axes of images.
#[derive(Clone, Copy)]
struct Axis {
    /// The length of the images.
    n: i64,
    /// The length of a patch.
    patch: i64,
    /// The largest shift.
    shift: i64,
    /// The distance of adjacent patches.
    patch_step: i64,
    /// The distance of adjacent shifts.
    shift_step: i64,
    /// The padding before the images.
    before: i64,
    /// The number of patches.
    patches: usize,
    /// The number of shifts.
    shifts: usize,
}

impl Axis {
    /// For patch `i` at shift number `j`: the positions of the patch within both images, and the shift.
    fn part(&self, i: usize, j: usize) -> (std::ops::Range<i64>, i64) {
        let start = i as i64 * self.patch_step - self.before;
        let shift = j as i64 * self.shift_step - self.shift;
        let first = start.max(0).max(-shift);
        let last = (start + self.patch).min(self.n).min(self.n - shift);
        (first..last.max(first), shift)
    }
}

impl PatchCorrelation {
    /// Checks shapes and arguments. Returns the geometry along each axis.
    fn axes(&self, x: &Shape, other: &Shape) -> Result<[Axis; 2]> {
        let op = "patch_correlation";
        if x.ndim() != 4 || x != other {
            return Err(Error::shape(op, "images of one shape (n, height, width, channels)", [x, other]));
        }
        for (name, given, count, least) in [
            ("patch", &self.patch, 2, 1),
            ("shift", &self.shift, 2, 0),
            ("patch_step", &self.patch_step, 2, 1),
            ("shift_step", &self.shift_step, 2, 1),
            ("padding", &self.padding, 4, 0),
        ] {
            if given.len() != count || given.iter().any(|v| !(least..1 << 31).contains(v)) {
                let expected = format!("{count} numbers, {least} or more");
                return Err(Error::argument(op, name, expected, format!("{given:?}")));
            }
        }
        let mut axes = [0, 1].map(|a| {
            let (n, before, after) = (x[1 + a] as i64, self.padding[2 * a], self.padding[2 * a + 1]);
            let (patch, patch_step) = (self.patch[a], self.patch_step[a]);
            let (shift, shift_step) = (self.shift[a], self.shift_step[a]);
            let over = n + before + after - patch;
            let patches = if over < 0 { 0 } else { (over / patch_step + 1) as usize };
            let shifts = (2 * shift / shift_step + 1) as usize;
            Axis { n, patch, shift, patch_step, shift_step, before, patches, shifts }
        });
        if axes.iter_mut().any(|a| a.patches == 0) {
            return Err(Error::shape(op, "images that a patch fits into", [x]));
        }
        Ok(axes)
    }
}

/// Calls `f` for each pair of pixels of two patches, with their offsets in both images.
fn pairs([rows, columns]: &[Axis; 2], at: [usize; 4], mut f: impl FnMut(usize, usize, usize)) {
    let ((ys, dy), (xs, dx)) = (rows.part(at[0], at[2]), columns.part(at[1], at[3]));
    let width = (xs.end - xs.start) as usize;
    if width == 0 {
        return;
    }
    for y in ys {
        f((y * columns.n + xs.start) as usize, ((y + dy) * columns.n + xs.start + dx) as usize, width);
    }
}

impl Compute for PatchCorrelation {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let [rows, columns] = self.axes(x.get(0), x.get(1))?;
        let shape = Shape::from([x.get(0)[0], rows.patches, columns.patches, rows.shifts, columns.shifts]);
        shape.checked_size()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (shape, axes) = (run.x_shape(0), self.axes(run.x_shape(0), run.x_shape(1))?);
        let (a, b, channels) = (run.x(0), run.x(1), shape[3]);
        let size = shape.size_from(1);
        let shifts = axes[0].shifts * axes[1].shifts;
        let y = run.y(0);
        let work = shifts * (self.patch[0] * self.patch[1]).max(1) as usize * channels.max(1);
        threads::rows_mut(y, shifts, (GRAIN / work).max(1), |place, y| {
            let (image, at) = (place / axes[1].patches / axes[0].patches, place / axes[1].patches);
            let (row, column) = (at % axes[0].patches, place % axes[1].patches);
            let (a, b) = (&a[image * size..][..size], &b[image * size..][..size]);
            for (s, y) in y.iter_mut().enumerate() {
                let mut sum = T::ZERO;
                pairs(&axes, [row, column, s / axes[1].shifts, s % axes[1].shifts], |i, j, width| {
                    let n = width * channels;
                    sum = sum + dot(&a[i * channels..][..n], &b[j * channels..][..n]);
                });
                *y = sum;
            }
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, axes) = (run.x_shape(0), self.axes(run.x_shape(0), run.x_shape(1))?);
        let (gy, channels, size) = (run.gy(0), shape[3], shape.size_from(1));
        let shifts = axes[0].shifts * axes[1].shifts;
        let places = axes[0].patches * axes[1].patches;
        for wanted in 0..2 {
            let Some(gx) = run.gx(wanted).map(Grad::adding) else { continue };
            let other = run.x(1 - wanted);
            threads::rows_mut(gx, size, 1, |image, gx| {
                let other = &other[image * size..][..size];
                threads::in_turn(places, (GRAIN / shifts.max(1)).max(1), |range| {
                    for place in range {
                        let (row, column) = (place / axes[1].patches, place % axes[1].patches);
                        for s in 0..shifts {
                            let g = gy[(image * places + place) * shifts + s];
                            let at = [row, column, s / axes[1].shifts, s % axes[1].shifts];
                            pairs(&axes, at, |i, j, width| {
                                let (own, from) = if wanted == 0 { (i, j) } else { (j, i) };
                                let n = width * channels;
                                let gx = gx[own * channels..][..n].iter_mut();
                                gx.zip(&other[from * channels..][..n]).for_each(|(gx, x)| *gx = *gx + g * *x);
                            });
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
        Reads::inputs(if gx == 0 { 0b10 } else { 0b01 })
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for PatchCorrelation {
    fn is_linear(&self, _: usize) -> bool {
        true
    }
}

/// The dot product, with eight partial sums.
#[inline(always)]
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest = a.remainder().iter().zip(b.remainder()).map(|(a, b)| *a * *b);
    let rest = rest.fold(T::ZERO, |sum, v| sum + v);
    for (a, b) in a.zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = *sum + *a * *b;
        }
    }
    sums.into_iter().fold(rest, |sum, v| sum + v)
}
