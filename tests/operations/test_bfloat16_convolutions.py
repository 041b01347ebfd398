"""Convolutions of values in bfloat16: outputs and gradients of each geometry, next to float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BFLOAT16 = ml_dtypes.bfloat16


class Case(NamedTuple):
    """The shapes of an input and a weight, and the arguments of a convolution."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    options: dict[str, Any]


CASES = {
    "padding": Case((2, 4, 9, 7), (5, 4, 3, 3), {"pad": (1, 1)}),
    "no padding": Case((2, 6, 9, 20), (17, 6, 3, 3), {}),
    "large padding": Case((3, 2, 5, 6), (4, 2, 3, 3), {"pad": (3, 4)}),
    "odd channels": Case((2, 5, 13, 11), (7, 5, 3, 3), {"pad": (1, 1)}),
    "three channels": Case((2, 3, 17, 33), (16, 3, 7, 7), {"pad": (3, 3), "stride": (2, 2)}),
    "one channel": Case((3, 1, 10, 12), (6, 1, 3, 3), {"pad": (1, 1)}),
    "one map": Case((2, 8, 10, 12), (1, 8, 3, 3), {"pad": (1, 1)}),
    "one image": Case((1, 16, 8, 9), (12, 16, 3, 3), {"pad": (1, 1)}),
    "odd images": Case((5, 4, 8, 8), (9, 4, 3, 3), {"pad": (1, 1)}),
    "stride": Case((2, 6, 11, 14), (10, 6, 3, 3), {"pad": (1, 1), "stride": (2, 2)}),
    "stride of three": Case((2, 4, 13, 16), (6, 4, 3, 3), {"pad": (1, 0), "stride": (3, 1)}),
    "stride of four": Case((2, 4, 21, 26), (6, 4, 5, 3), {"pad": (2, 1), "stride": (4, 4)}),
    "stride above kernel": Case((2, 4, 11, 12), (6, 4, 2, 1), {"stride": (3, 3)}),
    "stride equals kernel": Case((2, 4, 12, 12), (6, 4, 2, 2), {"stride": (2, 2)}),
    "dilation": Case((2, 6, 15, 17), (9, 6, 3, 3), {"pad": (2, 2), "dilation": (2, 2)}),
    "dilation and stride": Case((2, 3, 19, 17), (5, 3, 3, 2), {"pad": (2, 1), "dilation": (3, 2), "stride": (2, 3)}),
    "groups": Case((2, 12, 9, 10), (15, 4, 3, 3), {"pad": (1, 1), "group": 3}),
    "groups of odd channels": Case((2, 9, 9, 10), (6, 3, 3, 3), {"pad": (1, 1), "group": 3}),
    "groups of two channels": Case((2, 6, 9, 10), (6, 2, 3, 3), {"pad": (1, 1), "group": 3}),
    "groups of one map": Case((2, 9, 9, 10), (3, 3, 3, 3), {"pad": (1, 1), "group": 3}),
    "depthwise": Case((2, 5, 9, 10), (5, 1, 3, 3), {"pad": (1, 1), "group": 5}),
    "one element": Case((2, 7, 9, 10), (6, 7, 1, 1), {}),
    "one element, padded": Case((2, 7, 9, 10), (6, 7, 1, 1), {"pad": (1, 1)}),
    "one axis": Case((2, 6, 40), (5, 6, 5), {"pad": (2,), "stride": (2,)}),
    "three axes": Case((2, 4, 5, 6, 7), (6, 4, 3, 2, 3), {"pad": (1, 0, 1), "stride": (1, 2, 1)}),
    "wide rows": Case((2, 4, 3, 600), (6, 4, 3, 5), {"pad": (1, 2)}),
    "one pixel": Case((4, 6, 3, 3), (70, 6, 3, 3), {}),
    "many channels": Case((2, 70, 6, 6), (65, 70, 3, 3), {"pad": (1, 1)}),
    "channels last": Case((2, 9, 10, 6), (8, 3, 3, 6), {"pad": (1, 1), "channel_last": True}),
}
"""Convolutions by name."""
KINDS = ["bfloat16", "float32"]
"""Element types of the input."""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restores the number of threads and the algorithm of convolutions."""
    threads, algorithm = nn.get_num_threads(), nn.get_conv_algorithm()
    yield
    nn.set_num_threads(threads)
    nn.set_conv_algorithm(algorithm)


def whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns small whole numbers, whose sums of products are exact in float32."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def real(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns normal numbers in bfloat16."""
    return rng.normal(size=shape).astype(BFLOAT16).astype(np.float32)


def typed_leaf(array: np.ndarray, kind: str) -> nn.Variable:
    """Returns a leaf with a gradient that stores its values and the gradient in a type."""
    v = nn.Variable(array.shape, need_grad=True)
    dtype = {"bfloat16": BFLOAT16, "float32": np.float32, "float64": np.float64}[kind]
    v.data.cast(dtype)[...] = array
    return v


def arrays(case: Case, values: Callable[..., np.ndarray], deconvolution: bool) -> list[np.ndarray]:
    """Returns an input, a weight, a bias and a gradient of the output."""
    rng = np.random.default_rng(0)
    x, w = values(rng, case.x), values(rng, case.w)
    y = F.convolution(typed_leaf(x, "float32"), typed_leaf(w, "float32"), **case.options)
    if not deconvolution:
        return [x, w, values(rng, (case.w[0],)), values(rng, y.shape)]
    x = values(rng, y.shape)
    y = F.deconvolution(typed_leaf(x, "float32"), typed_leaf(w, "float32"), **case.options)
    axis = -1 if case.options.get("channel_last") else 1
    return [x, w, values(rng, (y.shape[axis],)), values(rng, y.shape)]


def run(
    given: list[np.ndarray], options: dict[str, Any], kind: str, *, deconvolution: bool, relu: bool = False
) -> list[np.ndarray]:
    """Returns the output and the gradients of the input, the weight and the bias."""
    x, w, b, gy = given
    own = "float64" if kind == "double" else "float32"
    leaves = [typed_leaf(x, own if kind == "double" else kind), typed_leaf(w, own), typed_leaf(b, own)]
    function = F.deconvolution if deconvolution else F.convolution
    with nn.context_scope(nn.Context(["cpu:double"])) if kind == "double" else nn.autocast():
        y = function(*leaves, **options)
        if relu:
            y = F.relu(y)
    for _ in range(2 if relu else 1):  # the second run is fused
        for v in leaves:
            v.grad.zero()
        y.forward()
        y.backward(nn.NdArray.from_numpy_array(gy))
    return [np.array(v) for v in (y.d, *(v.g for v in leaves))]


@pytest.mark.parametrize("deconvolution", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_convolutions_of_whole_numbers_are_exact(name: str, kind: str, deconvolution: bool) -> None:
    """Convolutions of small integers equal float64, rounded once."""
    nn.set_conv_algorithm("direct")
    case = CASES[name]
    given = arrays(case, whole, deconvolution)
    relu = kind == "bfloat16"
    got = run(given, case.options, kind, deconvolution=deconvolution, relu=relu)
    wanted = run(given, case.options, "double", deconvolution=deconvolution, relu=relu)
    for a, b in zip(got, wanted, strict=True):
        assert np.array_equal(a.astype(np.float64), b.astype(a.dtype).astype(np.float64))


@pytest.mark.parametrize("deconvolution", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_convolutions_have_the_errors_of_sums_in_float32(name: str, kind: str, deconvolution: bool) -> None:
    nn.set_conv_algorithm("direct")
    case = CASES[name]
    given = arrays(case, real, deconvolution)
    got = run(given, case.options, kind, deconvolution=deconvolution)
    wanted = run(given, case.options, "double", deconvolution=deconvolution)
    sizes = run([np.abs(v) for v in given], case.options, "double", deconvolution=deconvolution)
    terms = max(np.prod(case.w[1:]), np.prod(given[3].shape), np.prod(given[0].shape))
    for a, b, size in zip(got, wanted, sizes, strict=True):
        narrow = 0 if a.dtype == np.float32 else 2.0**-8
        assert (np.abs(a.astype(np.float64) - b) <= size * terms * 2.0**-24 + np.abs(b) * narrow).all()


@pytest.mark.parametrize("algorithm", ["auto", "direct"])
@pytest.mark.parametrize("name", CASES)
def test_convolutions_have_the_same_bits_with_one_and_two_threads(name: str, algorithm: str) -> None:
    nn.set_conv_algorithm(algorithm)
    case = CASES[name]
    for deconvolution in (False, True):
        given = arrays(case, real, deconvolution)
        found = []
        for threads in (1, 2):
            nn.set_num_threads(threads)
            found.append([v.tobytes() for v in run(given, case.options, "bfloat16", deconvolution=deconvolution)])
        assert found[0] == found[1]


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_convolutions_add_up(name: str) -> None:
    """In bfloat16, gradients of a weight and an input used twice are summed."""
    nn.set_conv_algorithm("direct")
    case = CASES[name]
    x, w, _, gy = arrays(case, whole, deconvolution=False)
    found = []
    for kind in ("bfloat16", "double"):
        own = "float64" if kind == "double" else "float32"
        leaves = [typed_leaf(x, "float64" if kind == "double" else kind), typed_leaf(w, own)]
        for v in leaves:
            v.grad.zero()
        with nn.context_scope(nn.Context(["cpu:double"])) if kind == "double" else nn.autocast():
            h = F.mul_scalar(leaves[0], 1.0)
            y = F.add2(F.convolution(h, leaves[1], **case.options), F.convolution(h, leaves[1], **case.options))
        y.forward()
        y.backward(nn.NdArray.from_numpy_array(gy))
        found.append([np.array(v) for v in (y.d, *(v.g for v in leaves))])
    for a, b in zip(*found, strict=True):
        # The two parts of a gradient are rounded one after the other.
        narrow = 0 if a.dtype == np.float32 else 2.0**-7
        assert (np.abs(a.astype(np.float64) - b) <= np.abs(b) * narrow).all()


def test_rows_without_elements_are_padding() -> None:
    """A convolution of an image of width zero with padding gives the bias."""
    case = Case((2, 4, 3, 0), (5, 4, 1, 3), {"pad": (0, 2)})
    given = arrays(case, whole, deconvolution=False)
    y, gx, gw, gb = run(given, case.options, "bfloat16", deconvolution=False)
    assert np.array_equal(y, np.broadcast_to(given[2][:, None, None], y.shape))
    assert gx.shape == case.x
    assert not gw.any()
    assert np.array_equal(gb, given[3].sum(axis=(0, 2, 3)))
