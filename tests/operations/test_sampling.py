"""Functions on images: forms of arguments, values from NNabla, and errors."""

import re

import numpy as np
import pytest
from cases import sampling
from support import DOUBLE

import kinnor as nn
import kinnor.functions as F


def variable(*shape, seed=0, low=-1.0, high=1.0, need_grad=False):
    """Returns a variable with random values."""
    values = np.random.RandomState(seed).uniform(low, high, shape)
    return nn.Variable.from_numpy_array(values, need_grad=need_grad)


def test_offsets_of_the_size_of_images_are_read_at_every_step():
    """Strided deformable convolution reads every `stride`-th offset."""
    x, w, offset, mask = variable(2, 2, 6, 7), variable(3, 2, 3, 3), variable(2, 18, 6, 7, seed=1), variable(2, 9, 6, 7)
    y = F.deformable_convolution(x, w, offset, mask, pad=(1, 1), stride=(2, 2))
    y.forward()
    read = [part.d[:, :, ::2, ::2] for part in (offset, mask)]
    expected = sampling.deformable_convolution(x.d, w.d, *read, pad=(1, 1), stride=(2, 2))
    np.testing.assert_allclose(y.d, expected, atol=1e-5)


# Values from NNabla 1.39.
RESIZED = [
    (
        {"mode": "cubic", "sizes": (1, 6)},
        [[-0.052517, 0.667969, 1.563079, 2.436919, 3.332031, 4.052518]],
    ),
    (
        {
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "roi": (0, 0.25, 1, 1.5),
            "extrapolation_value": 9.0,
            "sizes": (1, 4),
        },
        [[1.0, 2.666667, 9.0, 9.0]],
    ),
    (
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "sizes": (1, 8)},
        [[0, 1, 2, 2, 3, 3, 4, 4]],
    ),
    (
        {"mode": "linear", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "sizes": (1, 3)},
        [[0.833333, 2.5, 4.0]],
    ),
    (
        {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0, 0.25, 1, 1), "sizes": (2, 5)},
        [[0, 1, 2, 3, 4]] * 2,
    ),
    ({"mode": "linear", "coordinate_transformation_mode": "align_corners", "scales": (0.5, 1)}, np.zeros((0, 5))),
    ({"sizes": (1, 5)}, [[0, 1, 2, 3, 4]]),
]


@pytest.mark.parametrize("case", range(len(RESIZED)))
def test_modes_of_resizing(case):
    """`onnx_resize` gives the written values in each mode."""
    args, expected = RESIZED[case]
    y = F.onnx_resize(nn.Variable.from_numpy_array(np.arange(5.0).reshape(1, 5)), **args)
    y.forward()
    assert y.shape == np.shape(expected)
    assert y.parent is not None
    np.testing.assert_allclose(y.d, expected, atol=1e-5)


def test_the_nearest_elements_are_taken_as_they_are():
    x = nn.Variable.from_numpy_array(np.array([[0.0, np.nan, np.inf, 3.0]]), need_grad=True)
    x.grad.zero()
    y = F.onnx_resize(x, scales=(1, 2))
    y.forward()
    np.testing.assert_array_equal(y.d, [[0, 0, np.nan, np.nan, np.inf, np.inf, 3, 3]])
    y.backward()
    assert x.g.tolist() == [[2, 2, 2, 2]]
    x.reset_shape((2, 4), True)
    y.forward()
    assert y.shape == (2, 8)
    x.reset_shape((2, 5), True)
    with pytest.raises(nn.ShapeError):
        y.forward()


def test_float32_decides_which_element_of_a_resize_is_nearest():
    x = nn.Variable.from_numpy_array(np.arange(6.0).reshape(1, 6))
    y = F.onnx_resize(x, scales=(1, 0.7))
    y.forward()
    assert y.d.tolist() == [[0, 2, 3, 4]]  # 3.5 / 0.7 - 0.5 is 4.5 in float32, and a little more in float64


def test_values_outside_do_not_depend_on_the_border():
    x = nn.Variable.from_numpy_array(np.array([[np.nan, 1, 2, np.inf]]), need_grad=True)
    x.grad.zero()
    modes = {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0, -0.5, 1, 1.5)}
    y = F.onnx_resize(x, sizes=(1, 8), extrapolation_value=9.0, **modes)
    y.forward()
    np.testing.assert_array_equal(y.d, [[9, 9, np.nan, 1, 2, np.inf, 9, 9]])
    y.backward()
    assert x.g.tolist() == [[1, 1, 1, 1]]
    x.reset_shape((2, 4), True)
    x.d = 5
    y.forward()
    assert y.d.tolist() == [[9, 9, 5, 5, 5, 5, 9, 9]] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.onnx_resize(x), "onnx_resize: expected either scales or sizes, got both or neither"),
        (lambda x: F.onnx_resize(x, sizes=(1, 2, 3)), "expected one number for each of 4 axes, got 3"),
        (lambda x: F.onnx_resize(x, sizes=(1, 2, 3, 4), mode="area"), "`mode` to be one of nearest, linear, cubic"),
        (lambda x: F.roi_align(x, x, (2, 2)), "roi_align: expected images with four axes and boxes of shape (k, 5)"),
        (lambda x: F.nms_detection2d(x), "nms_detection2d: expected boxes of shape (n, boxes, 5 + classes)"),
        (lambda x: F.deformable_convolution(x, x, x, channel_last=True), "`channel_last` to be False, got True"),
        (lambda x: F.warp_by_grid(x, x, mode="cubic"), "warp_by_grid: expected `mode` to be linear or nearest"),
        (
            lambda x: F.adaptive_separable_convolution(x, x, x),
            "kernels of at least one element, no larger than the image",
        ),
    ],
)
def test_errors_name_the_expected_value(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(variable(1, 3, 2, 2))


def test_a_box_of_a_missing_image_is_an_error_at_run_time():
    y = F.roi_align(variable(2, 1, 4, 4), nn.Variable.from_numpy_array(np.array([[2.0, 0, 0, 1, 1]])), (1, 1))
    with pytest.raises(IndexError, match="a box of one of 2 images, got 2"):
        y.forward()


def test_patches_of_images_with_channels_first_or_last():
    rng = np.random.RandomState(0)
    a, b = (nn.Variable.from_numpy_array(rng.randn(2, 5, 6, 3).astype(np.float32)) for _ in range(2))
    last = F.patch_correlation(a, b, (2, 1), 1, 1, 1, padding=(0, 1), channel_last=True)
    first = F.patch_correlation(*(F.transpose(x, (0, 3, 1, 2)) for x in (a, b)), (2, 1), (1, 1), padding=(0, 0, 1, 1))
    nn.forward_all([last, first])
    assert first.shape == (2, 3, 3, 4, 8)
    np.testing.assert_allclose(first.d, last.d.transpose(0, 3, 4, 1, 2), rtol=1e-6)
    with pytest.raises(nn.ShapeError, match="patch_correlation: expected images of one shape"):
        F.patch_correlation(a, F.transpose(b, (0, 2, 1, 3)))


def test_boxes_are_chosen_as_nnabla_chooses_them():
    corners = [[[0, 0, 1, 1], [0, 0, 1, 0.5], [1, 1, 0, 0], [0.2, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.2]]]
    boxes = nn.Variable.from_numpy_array(np.array(corners, np.float32))
    scores = nn.Variable.from_numpy_array(np.array([[[0.5, 0.5, 0.4, 0.3, 0.2]]], np.float32))

    def chosen(*args):
        """Returns the indices of the chosen boxes."""
        y = F.onnx_non_max_suppression(boxes, scores, *args)
        y.forward()
        assert (y.data.dtype, y.shape[1]) == (np.int64, 3)
        return y.d[:, 2].tolist()

    assert chosen(0, 9, 0.5, 0.0) == [0, 1, 3, 4]
    assert chosen(0, 9, 0.49, 0.3) == [0, 3]
    assert chosen(0, 9, 0.51, 0.4) == [0, 1]
    assert chosen(0, 9, 0.0, 0.0) == [0, 3, 4]
    assert chosen(1, 9, 0.5, 0.0) == [0, 1, 2, 3]
    assert chosen(0, 2, 1.0, 0.0) == [0, 1]
    assert chosen() == []
    scores.d[0, 0, 1] = np.nan
    assert chosen(0, 9, 1.0, 0.0) == [0, 2, 3, 4]
    with pytest.raises(nn.ShapeError, match="onnx_non_max_suppression: expected boxes of shape"):
        F.onnx_non_max_suppression(boxes, boxes)
    for args in ((2,), (0, -1), (0, 1, 1.5)):
        with pytest.raises(nn.ArgumentError, match="onnx_non_max_suppression"):
            F.onnx_non_max_suppression(boxes, scores, *args)


def test_the_type_of_non_maximum_suppression():
    """The type of the function has the name in NNabla's files."""
    boxes, scores = (nn.Variable.from_numpy_array(np.full(s, 0.5)) for s in ((1, 2, 4), (1, 1, 2)))
    with nn.auto_forward():
        assert F.onnx_non_max_suppression(boxes, scores).parent.name == "ONNXNonMaxSuppression"


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zero", "repeat", "reflect"])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (4, 1), (3, 1030)])
def test_positions_are_as_exact_in_float32_as_in_float64(mode, padding, size):
    rng = np.random.default_rng(0)
    x = nn.Variable.from_numpy_array(rng.standard_normal((2, 3, *size)))
    # Between elements and far away, on elements, and at borders.
    grid = np.concatenate([rng.uniform(-3.3, 3.3, (2, 9, 40, 2)), rng.integers(-9, 9, (2, 9, 40, 2)) / 4], 1)
    grid = nn.Variable.from_numpy_array(grid.astype(np.float32))
    y = F.warp_by_grid(x, grid, mode, padding)
    with nn.context_scope(DOUBLE):
        exact = F.warp_by_grid(x, grid, mode, padding)
    nn.forward_all([y, exact])
    np.testing.assert_allclose(y.d, exact.d, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_positions_that_are_nan(mode):
    """NaN, infinite and distant positions of `warp_by_grid` give elements of the image or zero."""
    x = nn.Variable.from_numpy_array(np.arange(1.0, 5.0).reshape(1, 1, 1, 4))
    far = [np.nan, np.inf, -np.inf, 3e38, -3e38]
    grid = nn.Variable.from_numpy_array(np.array([[at, 0.0] for at in far], np.float32).reshape(1, 1, 5, 2))
    for padding, expected in (("zero", [0] * 5), ("repeat", [0, 4, 1, 4, 1]), ("reflect", [0, 0, 0])):
        y = F.warp_by_grid(x, grid, mode, padding)
        y.forward()
        assert y.d.ravel().tolist()[: len(expected)] == expected


PLACES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
"""Maps from output to input coordinates, for arrays that are not cropped."""


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_resized_element_depends_on_its_neighbours_only(mode, place, exclude_outside, bad):
    arguments = {"mode": mode, "coordinate_transformation_mode": place, "exclude_outside": exclude_outside}
    plain = np.arange(35, dtype=np.float32).reshape(5, 7)
    for sizes in ((9, 4), (5, 13), (3, 7), (10, 14)):

        def resize(x, sizes=sizes):
            """Returns the resized array."""
            y = F.onnx_resize(nn.Variable.from_numpy_array(x), sizes=sizes, **arguments)
            y.forward()
            return y.d.copy()

        for at in ((0, 0), (2, 3), (4, 6)):
            spoilt, moved = plain.copy(), plain.copy()
            spoilt[at] = bad
            moved[at] += 1000
            before, after = resize(plain), resize(spoilt)
            apart = resize(moved) == before
            assert apart.any()
            assert np.array_equal(after[apart], before[apart])


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e25, 1e38])
def test_overlaps_of_boxes_do_not_depend_on_their_unit(unit):
    boxes = np.array([[0, 0, 2, 2], [0.5, 0, 2, 2], [1.9, 0, 2, 2], [0, 0, 1, 2.5]])
    x = np.concatenate([boxes * unit, [[1, 0.9], [1, 0.8], [1, 0.7], [1, 0.6]]], 1).astype(np.float32)
    y = F.nms_detection2d(nn.NdArray.from_numpy_array(x[None]), thresh=0.1, nms=0.45)
    np.testing.assert_allclose(y.data[0, :, 5], [0.9, 0, 0.7, 0.6])
