//! `onnx_non_max_suppression`: indices of boxes that overlap no better box, class by class.

use parking_lot::Mutex;

use crate::array::{DType, Shape};
use crate::kernels::scratch::List;
use crate::kernels::suppression::{Corners, Score, Suppression};
use crate::kernels::{Float, stop};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ONNXNonMaxSuppression>()];

op! {
    /// Non-maximum suppression: indices of the boxes that do not overlap a better box of the same class. Their number
    /// depends on the values, which must be known when the function is built.
    ///
    /// Args:
    ///     x: Boxes and scores, shape (n, boxes, 4 + classes).
    ///     center_point_box: 0 if boxes are two opposite corners (y, x, y, x), 1 if they are centre and size (x, y,
    ///         width, height).
    ///     max_output_boxes_per_class: The most boxes selected for an image and a class.
    ///     iou_threshold: The largest allowed intersection over union of two boxes.
    ///     score_threshold: Boxes with lower or equal scores are not selected.
    ///
    /// Returns:
    ///     Array of int64 of shape (m, 3): image, class and box, with the better boxes of a class first.
    ///
    /// Raises:
    ///     ShapeError: If `x` has another shape.
    ///     ArgumentError: If an argument is out of range.
    ONNXNonMaxSuppression = onnx_non_max_suppression(x; center_point_box: i64 = 0,
        max_output_boxes_per_class: i64 = 0, iou_threshold: f64 = 0.0, score_threshold: f64 = 0.0)
}

/// The name of the operation, for error messages.
const OP: &str = "onnx_non_max_suppression";

/// A selection made for inferring shapes, for reuse in the following run.
struct ChosenIndices {
    /// The arguments, see [`ONNXNonMaxSuppression::arguments`].
    arguments: (i64, i64, f64, f64),
    /// The shape of the input.
    shape: Shape,
    /// The values of the input.
    x: Vec<f64>,
    /// Batch, class and box of each selected box.
    chosen: Vec<[usize; 3]>,
}

/// The last selection, until a run has taken it. No thread waits for the lock: a run that does not get it selects
/// again.
static LAST: Mutex<Option<ChosenIndices>> = Mutex::new(None);

impl ONNXNonMaxSuppression {
    /// Checks the shape and the arguments.
    fn check(&self, shape: &Shape) -> Result<()> {
        if shape.ndim() != 3 || shape[2] < 4 {
            return Err(Error::shape(OP, "boxes and scores of shape (n, boxes, 4 + classes)", [shape]));
        }
        let refused = |name, expected: &str, got| Err(Error::argument(OP, name, expected.to_string(), got));
        if !(0..=1).contains(&self.center_point_box) {
            return refused("center_point_box", "0 or 1", self.center_point_box.to_string());
        }
        if self.max_output_boxes_per_class < 0 {
            let got = self.max_output_boxes_per_class.to_string();
            return refused("max_output_boxes_per_class", "0 or more", got);
        }
        if !(0.0..=1.0).contains(&self.iou_threshold) {
            return refused("iou_threshold", "a number from 0 to 1", self.iou_threshold.to_string());
        }
        Ok(())
    }

    /// The arguments, for comparison.
    fn arguments(&self) -> (i64, i64, f64, f64) {
        let Self { center_point_box, max_output_boxes_per_class, iou_threshold, score_threshold } = *self;
        (center_point_box, max_output_boxes_per_class, iou_threshold, score_threshold)
    }

    /// The lower and upper ends of a box along both axes.
    #[inline(always)]
    fn corners<T: Float>(&self, of: &[T]) -> Corners {
        [self.ends(of[0].real(), of[2].real()), self.ends(of[1].real(), of[3].real())]
    }

    /// The lower and upper end of a box along one axis.
    #[inline(always)]
    fn ends(&self, a: f64, b: f64) -> [f64; 2] {
        if self.center_point_box == 1 {
            let half = b * 0.5;
            [a - half, a + half]
        } else if b < a {
            [b, a]
        } else {
            [a, b]
        }
    }

    /// The suppression with the arguments and a least score.
    fn suppression<S: Score>(&self, least: S) -> Suppression<S> {
        Suppression { most: self.max_output_boxes_per_class as usize, share: self.iou_threshold, least }
    }

    /// Calls `f` with image, class and box of each selected box. Computes in the type in which values are known when
    /// shapes are inferred, so that the run finds the same number.
    fn choose(&self, x: &[f64], shape: &Shape, mut f: impl FnMut([usize; 3])) {
        let (n, size) = (shape[1], shape[2]);
        for (image, class) in (0..shape[0]).flat_map(|image| (4..size).map(move |class| (image, class))) {
            let row = |i: usize| &x[(image * n + i) * size..][..size];
            let scores = (0..n).map(|i| row(i)[class]);
            self.suppression(self.score_threshold).choose(
                scores,
                #[inline(always)]
                |i| self.corners(row(i)),
                #[inline(always)]
                |i| f([image, class - 4, i]),
            );
        }
    }
}

/// Image, class and box of each selected box, one after the other. Boxes and scores are separate arrays of shapes (n,
/// boxes, 4) and (n, classes, boxes).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Argument`] if an argument is out of range, [`Error::Memory`].
pub fn chosen_boxes(
    op: &ONNXNonMaxSuppression,
    (boxes, of_boxes): (&[f32], &Shape),
    (scores, of_scores): (&[f32], &Shape),
) -> Result<List<i64>> {
    let (images, classes, n) = match (&of_boxes[..], &of_scores[..]) {
        (&[images, n, 4], &[of, classes, of_each])
            if (images, n) == (of, of_each) && u32::try_from(n).is_ok() =>
        {
            (images, classes, n)
        }
        _ => {
            let expected = "boxes of shape (n, boxes, 4) and scores of shape (n, classes, boxes)";
            return Err(Error::shape(OP, expected, [of_boxes, of_scores]));
        }
    };
    op.check(&Shape::from([images, n, 4 + classes]))?;
    let suppression = op.suppression(op.score_threshold as f32);
    stop::guarded(|| {
        let mut found = List::with_capacity(3 * n);
        for at in 0..images * classes {
            let (image, class) = (at / classes, at % classes);
            let (boxes, scores) = (&boxes[image * n * 4..][..n * 4], &scores[at * n..][..n]);
            suppression.choose(
                scores.iter().copied(),
                #[inline(always)]
                |i| op.corners(&boxes[4 * i..][..4]),
                #[inline(always)]
                |i| found.extend_from_slice(&[image as i64, class as i64, i as i64]),
            );
        }
        Ok(found)
    })
}

impl ChosenIndices {
    /// True if the selection was made by this operation for these values.
    fn is_of<T: Float>(&self, op: &ONNXNonMaxSuppression, shape: &Shape, x: &[T]) -> bool {
        let same = |(a, b): (&f64, &T)| a.to_bits() == b.real().to_bits();
        self.arguments == op.arguments() && self.shape == *shape && self.x.iter().zip(x).all(same)
    }
}

impl Compute for ONNXNonMaxSuppression {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.check(x.get(0))?;
        let values = x.values.ok_or_else(|| {
            Error::Graph(format!(
                "{OP}: expected values to be known on building (its output depends on them)"
            ))
        })?;
        let mut chosen = Vec::new();
        self.choose(values, x.get(0), |of| chosen.push(of));
        let n = chosen.len();
        let (arguments, shape) = (self.arguments(), x.get(0).clone());
        if let Some(mut last) = LAST.try_lock() {
            *last = Some(ChosenIndices { arguments, shape, x: values.to_vec(), chosen });
        }
        one([n, 3])
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let x = run.x(0);
        let (shape, n) = (run.x_shape(0), run.y_shape(0)[0]);
        let (y, mut found) = (run.y_index(0), 0);
        let put = |chosen: [usize; 3]| {
            if let Some(y) = y.get_mut(3 * found..3 * found + 3) {
                y.iter_mut().zip(chosen).for_each(|(y, v)| *y = v as i64);
            }
            found += 1;
        };
        match LAST.try_lock().and_then(|mut last| last.take()).filter(|last| last.is_of(self, shape, x)) {
            Some(last) => last.chosen.into_iter().for_each(put),
            None => self.choose(&x.iter().map(|v| v.real()).collect::<List<f64>>(), shape, put),
        }
        if found == n {
            return Ok(());
        }
        Err(Error::Value(format!("{OP}: expected {n} boxes to be chosen as on building, got {found}")))
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }

    const SHAPED_BY: Option<usize> = Some(0);
}
