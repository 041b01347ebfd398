//! Non-maximum suppression of boxes, computed on the current values of arrays. Knows arrays; the choice of boxes is in
//! `ops`.

use pyo3::prelude::*;

use super::arguments::{number, object, whole};
use super::classes::{NdArray, Variable};
use super::numpy;
use crate::array::DType;
use crate::graph;
use crate::ops::{ONNXNonMaxSuppression, chosen_boxes};

/// Result of the function `onnx_non_max_suppression` for the current values of two variables, as a NumPy array.
///
/// Args:
///     boxes: Boxes, shape (n, boxes, 4).
///     scores: Scores, shape (n, classes, boxes).
///     center_point_box: As in the function.
///     max_output_boxes_per_class: As in the function.
///     iou_threshold: As in the function.
///     score_threshold: As in the function.
///
/// Raises:
///     ShapeError: If the shapes do not fit.
///     ArgumentError: If an argument is out of range.
#[pyfunction]
fn non_max_suppression<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = object)] boxes: Bound<'py, Variable>,
    #[pyo3(from_py_with = object)] scores: Bound<'py, Variable>,
    #[pyo3(from_py_with = whole)] center_point_box: i64,
    #[pyo3(from_py_with = whole)] max_output_boxes_per_class: i64,
    #[pyo3(from_py_with = number)] iou_threshold: f64,
    #[pyo3(from_py_with = number)] score_threshold: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let op = ONNXNonMaxSuppression {
        center_point_box,
        max_output_boxes_per_class,
        iou_threshold,
        score_threshold,
    };
    let (boxes, scores) = (boxes.get().variable.data(), scores.get().variable.data());
    let (of_boxes, of_scores) = (boxes.view::<f32>()?, scores.view::<f32>()?);
    let choose = || -> crate::Result<graph::NdArray> {
        let found = chosen_boxes(&op, (&of_boxes, &boxes.shape), (&of_scores, &scores.shape))?;
        let array = graph::NdArray::new([found.len() / 3, 3].into())?;
        array.cast(DType::I64)?;
        array.copy_from_slice(&found)?;
        Ok(array)
    };
    let found = if scores.shape.size() > 1 << 14 { py.detach(choose) } else { choose() };
    numpy::live_view(py, &NdArray::from(found?).array)
}

/// Adds the function to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(non_max_suppression, m)?)
}
