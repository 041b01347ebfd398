"""Functions of images and boxes that are composed of other functions, or accept arguments in several forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _check, _core
from .._core import ArgumentError, CallError, NdArray, ShapeError, Variable
from . import with_constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["onnx_non_max_suppression", "onnx_resize", "patch_correlation"]

T = TypeVar("T", Variable, NdArray)

f = _core.functions


def integers(name: str, given: int | Sequence[int]) -> list[int]:
    """A list of integers, from one or several."""
    numbers = given if isinstance(given, (list, tuple)) else np.ravel(np.asarray(given, object))
    return [_check.whole("patch_correlation", name, n) for n in numbers]


def pair(name: str, given: int | Sequence[int]) -> list[int]:
    """A list of two integers, from one or two."""
    numbers = integers(name, given)
    return numbers * 2 if len(numbers) == 1 else numbers


def patch_correlation(
    x1: T,
    x2: T,
    patch: int | Sequence[int] = (1, 1),
    shift: int | Sequence[int] = (0, 0),
    patch_step: int | Sequence[int] = (1, 1),
    shift_step: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0, 0, 0),
    channel_last: bool = False,
) -> T:
    """Correlation of patches of two images, at all shifts within a range.

    `y[n, i, j, h, w] = sum over k, l, c of x1[n, c, h + k, w + l] x2[n, c, h + k + s_i, w + l + s_j]`.

    Args:
        x1: Images, shape (n, channels, height, width), or (n, height, width, channels) if `channel_last`.
        x2: Images of the same shape.
        patch: Height and width of a patch; one number is both.
        shift: Largest shift, in both directions, along height and width.
        patch_step: Stride of patches.
        shift_step: Stride of shifts.
        padding: Zeros above, below, left and right of the images. Two numbers apply to height and width.
        channel_last: Whether channels are the last axis of the images, and shifts the last axes of the output.

    Returns:
        Array of shape (n, shifts along height, shifts along width, rows, columns), or (n, rows, columns, shifts along
        height, shifts along width) if `channel_last`.

    Raises:
        ShapeError: If the images differ in shape, do not have four axes, or are smaller than a patch.
        ArgumentError: If an argument has the wrong number of values, or a value out of range.

    Source:
        Fischer et al., FlowNet, 2015, arXiv:1504.06852.

        >>> import numpy as np, kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable.from_numpy_array(np.ones((1, 2, 3, 4)))
        >>> y = F.patch_correlation(x, x, (3, 1), shift=(0, 1))
        >>> y.forward()
        >>> y.d.squeeze().tolist()
        [[0.0, 6.0, 6.0, 6.0], [6.0, 6.0, 6.0, 6.0], [6.0, 6.0, 6.0, 0.0]]
    """
    _check.arrays("patch_correlation", x1=x1, x2=x2)
    if x1.ndim != 4 or x1.shape != x2.shape:
        raise ShapeError(
            f"patch_correlation: expected images of one shape with four axes, got shapes {x1.shape}, {x2.shape}"
        )
    pairs = [
        pair("patch", patch),
        pair("shift", shift),
        pair("patch_step", patch_step),
        pair("shift_step", shift_step),
    ]
    sides = integers("padding", padding)
    if len(sides) == 1:
        sides *= 4
    elif len(sides) == 2:
        sides = [sides[0], sides[0], sides[1], sides[1]]
    if not channel_last:
        x1, x2 = (f.transpose(x, (0, 2, 3, 1)) for x in (x1, x2))
    y: T = f.patch_correlation(x1, x2, *pairs, sides)
    if channel_last:
        return y
    result: T = f.transpose(y, (0, 3, 4, 1, 2))
    return result


def onnx_non_max_suppression(
    boxes: T,
    scores: T,
    center_point_box: int = 0,
    max_output_boxes_per_class: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = 0.0,
) -> T:
    """Non-maximum suppression for each class: the indices of the selected boxes.

    Boxes of a class are visited by descending score. A box is selected unless its intersection over union with a
    selected box is above `iou_threshold`. The number of selected boxes depends on the values, which must be known when
    the function is built.

    Args:
        boxes: Boxes, shape (n, boxes, 4).
        scores: Scores, shape (n, classes, boxes).
        center_point_box: 0 if a box is two opposite corners (y, x, y, x), 1 if it is centre and size (x, y, width,
            height).
        max_output_boxes_per_class: Largest number of boxes for each image and class; by default 0, which selects none.
        iou_threshold: Largest intersection over union of two selected boxes, from 0 to 1.
        score_threshold: Selected boxes have a score above this.

    Returns:
        Array of int64 of shape (m, 3): image, class and box, by descending score within a class.

    Raises:
        ShapeError: If the shapes do not fit.
        ArgumentError: If an argument is out of range.

    Source:
        ONNX, NonMaxSuppression.

        >>> import kinnor as nn, kinnor.functions as F
        >>> boxes = nn.Variable.from_numpy_array([[[0, 0, 2, 2], [0, 0, 2, 1.8], [3, 3, 4, 4]]])
        >>> scores = nn.Variable.from_numpy_array([[[0.5, 0.9, 0.3]]])
        >>> y = F.onnx_non_max_suppression(boxes, scores, 0, 2, 0.5)
        >>> y.forward()
        >>> y.d.tolist()
        [[0, 0, 1], [0, 0, 2]]
    """
    _check.arrays("onnx_non_max_suppression", boxes=boxes, scores=scores)
    fits = boxes.ndim == scores.ndim == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ShapeError(
            "onnx_non_max_suppression: expected boxes of shape (n, boxes, 4) and scores of shape (n, classes, boxes), "
            f"got shapes {boxes.shape}, {scores.shape}"
        )
    x = f.concatenate(boxes, f.transpose(scores, (0, 2, 1)), axis=2)
    y: T = f.onnx_non_max_suppression(x, center_point_box, max_output_boxes_per_class, iou_threshold, score_threshold)
    return y


MODES = ("nearest", "linear", "cubic")
"""Ways of interpolation."""
COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
"""Ways to compute the place in the input from the place in the output."""
ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Rounds a place in the input to the nearest element, by the name of the way."""


def onnx_resize(
    x: T,
    roi: Sequence[float] = (),
    scales: Sequence[float] = (),
    sizes: Sequence[int] = (),
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    nearest_mode: str = "round_prefer_floor",
) -> T:
    """Resize an array like ONNX's operator `Resize`, by interpolation along each axis.

    As in ONNX Runtime, an axis with a factor of 1 is unchanged, independent of `roi`. Coordinates are computed in
    float32 to choose the nearest element and to detect positions outside of `x`.

    Args:
        x: Input of any shape.
        roi: For `tf_crop_and_resize`, the start of the resized part along each axis, followed by the ends. 0 is the
            first element of an axis, 1 the last.
        scales: Factor for each axis; give this or `sizes`.
        sizes: Length of each axis of the output.
        mode: `nearest`, `linear` (of two elements) or `cubic` (of four elements).
        coordinate_transformation_mode: Map from output to input coordinates: `half_pixel`, `pytorch_half_pixel`,
            `align_corners`, `asymmetric`, `tf_half_pixel_for_nn` or `tf_crop_and_resize`.
        cubic_coeff_a: Coefficient of the cubic interpolation.
        exclude_outside: 1 to ignore elements outside of `x`, 0 to replace them by the element at the border.
        extrapolation_value: For `tf_crop_and_resize`, the value at positions outside of `x`.
        nearest_mode: `round_prefer_floor`, `round_prefer_ceil`, `floor` or `ceil`.

    Returns:
        Array with as many axes as `x`.

    Raises:
        ArgumentError: If a mode is unknown, or `scales`, `sizes` or `roi` do not fit the axes of `x`.

    Source:
        ONNX operators, https://github.com/onnx/onnx/blob/main/docs/Operators.md.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
        >>> F.onnx_resize(x, scales=[2.0]).data
        array([1., 1., 2., 2.], dtype=float32)
    """
    _check.arrays("onnx_resize", x=x)
    for name, numbers in (("roi", roi), ("scales", scales), ("sizes", sizes)):
        if not hasattr(numbers, "__len__"):
            raise CallError(f"onnx_resize: expected `{name}` to be a sequence of numbers, got {numbers!r}")
    for name, value in (
        ("cubic_coeff_a", cubic_coeff_a),
        ("exclude_outside", exclude_outside),
        ("extrapolation_value", extrapolation_value),
    ):
        _check.number("onnx_resize", name, value)
    for name, given, known in (
        ("mode", mode, MODES),
        ("coordinate_transformation_mode", coordinate_transformation_mode, COORDINATES),
        ("nearest_mode", nearest_mode, tuple(ROUNDINGS)),
    ):
        if given not in known:
            raise ArgumentError(f"onnx_resize: expected `{name}` to be one of {', '.join(known)}, got {given!r}")
    lengths = resized(x.shape, scales, sizes)
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if crops and len(roi) != 2 * x.ndim:
        raise ArgumentError(f"onnx_resize: expected `roi` to have {2 * x.ndim} numbers, got {len(roi)}")
    y: T = x
    outside = np.zeros([1] * x.ndim, bool)
    for axis, (n, to) in enumerate(zip(x.shape, lengths, strict=True)):
        scale = float(scales[axis]) if len(scales) else to / n
        if scale == 1:
            continue
        part = (roi[axis], roi[x.ndim + axis]) if crops else (0.0, 1.0)
        at = places_along(n, np.arange(to, dtype=np.float32), scale, coordinate_transformation_mode, part)
        along = [-1 if a == axis else 1 for a in range(x.ndim)]
        if crops:
            outside = outside | ((at < 0) | (at > n - 1)).reshape(along)
        if mode == "nearest":
            indices = np.clip(ROUNDINGS[nearest_mode](at), 0, n - 1).astype(int)
            # No element is filled. The function fails if the axis gets another length, and keeps integers as they are.
            none = type(x).from_numpy_array(np.zeros([n if a == axis else 1 for a in range(x.ndim)], np.float32))
            held = with_constant(f.bool_fill(y, none, 0.0), 1)
            y = with_constant(f.gather(held, type(x).from_numpy_array(indices), axis), 1)
            continue
        at = places_along(n, np.arange(to, dtype=np.float64), scale, coordinate_transformation_mode, part)
        weights = taps_along(at, n, mode, cubic_coeff_a, bool(exclude_outside))
        y = resampled(y, weights, axis)
    if outside.any():
        where = type(x).from_numpy_array(outside.astype(np.float32))
        y = with_constant(f.bool_fill(y, where, float(extrapolation_value)), 1)
    return f.identity(y) if y is x else y


def of_length(x: T, n: int, axis: int) -> T:
    """Returns `x`, by a function that fails if the axis gets another length than `n`."""
    ones = np.ones([n if a == axis else 1 for a in range(x.ndim)], np.float32)
    y: T = with_constant(f.mul2(x, type(x).from_numpy_array(ones)), 1)
    return y


def resampled(x: T, weights: NDArray[np.floating], axis: int) -> T:
    """Interpolates along an axis.

    Each result reads only the elements whose weight is not zero: an infinite element times zero is NaN.

    Args:
        x: Input.
        weights: The weight of each element of the axis for each result, shape (results, elements).
        axis: The axis.
    """
    n = np.count_nonzero(weights, axis=1)
    taps = max(int(n.max(initial=0)), 1)
    # The elements of a result by falling size of their weights. The last one is read several times if there are fewer
    # than `taps`, each time with the same part of its weight.
    elements = np.argsort(-np.abs(weights), axis=1, kind="stable")[:, :taps]
    last = np.maximum(n - 1, 0)[:, None]
    parts = np.minimum(np.arange(elements.shape[1]), last)
    elements = np.take_along_axis(elements, parts, 1)
    shares = np.take_along_axis(weights, elements, 1)
    shares = np.where(parts == last, shares / (elements.shape[1] - last), shares).astype(weights.dtype)
    along = [-1 if a == axis else 1 for a in range(x.ndim)]
    found: list[T] = []
    x = of_length(x, weights.shape[1], axis)
    for element, share in zip(elements.T, shares.T, strict=True):
        read = with_constant(f.gather(x, type(x).from_numpy_array(element.astype(np.int64)), axis), 1)
        found.append(with_constant(f.mul2(read, type(x).from_numpy_array(share.reshape(along))), 1))
    return f.add_n(*found) if len(found) > 1 else found[0]


def resized(shape: Sequence[int], scales: Sequence[float], sizes: Sequence[int]) -> list[int]:
    """The shape of a resized array, from `scales` or `sizes`."""
    if (len(scales) > 0) == (len(sizes) > 0):
        raise ArgumentError("onnx_resize: expected either scales or sizes, got both or neither")
    given = len(scales) or len(sizes)
    if given != len(shape):
        raise ArgumentError(f"onnx_resize: expected one number for each of {len(shape)} axes, got {given}")
    found = [int(v) for v in sizes] if len(sizes) else [int(n * s) for n, s in zip(shape, scales, strict=True)]
    if any(n < 0 for n in found) or 0 in shape:
        raise ArgumentError(f"onnx_resize: expected lengths of axes that have elements, got {found} of {tuple(shape)}")
    return found


def places_along(n: int, i: NDArray[Any], scale: float, mode: str, part: tuple[float, float]) -> Any:
    """Input coordinates along an axis of length `n` for the output indices `i`, in the type of `i`."""
    factor, last, start, end = (i.dtype.type(v) for v in (scale, n - 1, *part))
    half, steps = i.dtype.type(0.5), i.dtype.type(max(len(i) - 1, 1))
    if mode == "align_corners":
        return i * last / steps
    if mode == "asymmetric":
        return i / factor
    if mode == "tf_half_pixel_for_nn":
        return (i + half) / factor
    if mode == "tf_crop_and_resize":
        middle = half * (start + end) * last
        return start * last + i * (end - start) * last / steps if len(i) > 1 else i + middle
    if mode == "pytorch_half_pixel" and len(i) == 1:
        return i
    return (i + half) / factor - half


def taps_along(at: NDArray[np.float64], n: int, mode: str, a: float, exclude: bool) -> NDArray[np.float64]:
    """The interpolation matrix: the weight of each of `n` elements for each of the coordinates `at`."""
    weights = np.zeros((len(at), n))
    rows = np.arange(len(at))
    low = np.floor(at)
    for step in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
        distance = np.abs(at - low - step)
        if mode == "linear":
            share = 1 - distance
        else:
            near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
            share = np.where(distance <= 1, near, ((distance - 5) * distance + 8) * distance * a - 4 * a)
        place = low + step
        if exclude:
            share = np.where((place < 0) | (place > n - 1), 0.0, share)
        np.add.at(weights, (rows, np.clip(place, 0, n - 1).astype(int)), share)
    if exclude:
        total = weights.sum(1, keepdims=True)
        weights /= np.where(total == 0, 1, total)
    return weights
