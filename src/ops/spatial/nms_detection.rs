//! `nms_detection2d`: non-maximum suppression of detected boxes.

use crate::kernels::Float;
use crate::kernels::scratch::List;
use crate::kernels::threads;
use crate::ops::contract::facts::ALL_INTEGERS;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<NmsDetection2d>()];

op! {
    /// Non-maximum suppression of detected boxes. Probabilities are multiplied by objectness, and set to zero if they
    /// are low or if the box overlaps a better one. The gradient is zero.
    ///
    /// Args:
    ///     x: Boxes, shape (n, boxes, 5 + classes): x and y of the centre, width, height, objectness, and a probability
    ///         for each class.
    ///     thresh: Objectness and probabilities below this become zero.
    ///     nms: Intersection over union above which the worse of two boxes is suppressed.
    ///     nms_per_class: Compare boxes class by class, and suppress the probability of that class. If off, compare
    ///         them by objectness, and suppress objectness and all probabilities.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If `x` has another shape.
    ///
    /// Source:
    ///     Redmon and Farhadi, YOLO9000, 2016, arXiv:1612.08242.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> rows = [[0.5, 0.5, 1.0, 1.0, 1.0, 0.75], [0.5, 0.5, 1.0, 0.875, 1.0, 0.5]]
    ///     >>> boxes = nn.NdArray.from_numpy_array([rows])
    ///     >>> F.nms_detection2d(boxes).data[..., 5]  # probabilities; the boxes overlap
    ///     array([[0.75, 0.  ]], dtype=float32)
    /// ```
    NmsDetection2d = nms_detection2d(x; thresh: f64 = 0.5, nms: f64 = 0.45, nms_per_class: bool = true)
}

/// Intersection over union of two boxes.
fn overlap<T: Float>(a: &[T], b: &[T]) -> T {
    let half = T::of(0.5);
    let along = |i: usize| {
        let high = (a[i] + a[i + 2] * half, b[i] + b[i + 2] * half);
        let low = (a[i] - a[i + 2] * half, b[i] - b[i + 2] * half);
        let (end, start) =
            (if high.0 < high.1 { high.0 } else { high.1 }, if low.0 > low.1 { low.0 } else { low.1 });
        end - start
    };
    let (w, h) = (along(0), along(1));
    if !(w > T::ZERO && h > T::ZERO) {
        return T::ZERO;
    }
    let (common, areas) = (w * h, a[2] * a[3] + b[2] * b[3]);
    if common >= T::MIN_POSITIVE && areas <= T::MAX {
        return common / (areas - common);
    }
    // The areas are not representable: their quotient is, in units of the longest side.
    let unit = a[2..4].iter().chain(&b[2..4]).fold(T::ZERO, |most, v| if *v > most { *v } else { most });
    let area = |w: T, h: T| (w / unit) * (h / unit);
    area(w, h) / (area(a[2], a[3]) + area(b[2], b[3]) - area(w, h))
}

impl Compute for NmsDetection2d {
    fn moves(&self, _: usize) -> bool {
        true
    }

    // Probabilities are products.
    fn makes_reals(&self) -> Option<[i64; 2]> {
        Some(ALL_INTEGERS)
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if x.get(0).ndim() != 3 || x.get(0)[2] <= 5 {
            return Err(Error::shape(
                "nms_detection2d",
                "boxes of shape (n, boxes, 5 + classes)",
                [x.get(0)],
            ));
        }
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, shape) = (run.x(0), run.x_shape(0));
        let (n, size) = (shape[1], shape[2]);
        let y = run.y(0);
        let (least, nms) = (T::of(self.thresh), T::of(self.nms));
        let kept = |v: T| if v < least { T::ZERO } else { v };
        for (y, x) in y.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
            y[..4].copy_from_slice(&x[..4]);
            y[4] = kept(x[4]);
            let objectness = y[4];
            y[5..].iter_mut().zip(&x[5..]).for_each(|(y, p)| *y = kept(objectness * *p));
        }
        // The score to compare: the probability of each class, or objectness.
        let (width, score) = if self.nms_per_class { (1, 0) } else { (size, 4) };
        threads::columns_mut([y], [n, size], width, 1, |image, some, [mut y]| {
            if !self.nms_per_class || some.start >= 5 {
                let boxes = &x[image * n * size..][..n * size];
                let mut order: List<(T, usize)> =
                    (0..n).map(|i| (y.row(i)[score], i)).filter(|s| s.0 != T::ZERO).collect();
                order.sort_unstable_by(|a, b| {
                    let by_score = b.0.partial_cmp(&a.0).unwrap_or_else(|| b.0.is_nan().cmp(&a.0.is_nan()));
                    by_score.then(a.1.cmp(&b.1))
                });
                let mut gone = List::repeat(false, order.len());
                for a in 0..order.len() {
                    // By objectness, a box that is suppressed itself still suppresses others.
                    if gone[a] && self.nms_per_class {
                        continue;
                    }
                    let better = &boxes[order[a].1 * size..][..4];
                    for b in a + 1..order.len() {
                        gone[b] |= overlap(better, &boxes[order[b].1 * size..][..4]) > nms;
                    }
                }
                for ((_, i), _) in order.iter().zip(&*gone).filter(|(_, gone)| **gone) {
                    y.row(*i)[score..].fill(T::ZERO);
                }
            }
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
}
