"""Fourier transforms and sums of pairs in ONNX models, compared with ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper
from onnx_runtime import compared

RNG = np.random.default_rng(0)


def signals(n_parts, *lengths, dtype=np.float32):
    """Returns feeds of random signals with real parts, or real and imaginary ones."""
    return [{"x": RNG.standard_normal((2, n, n_parts)).astype(dtype)} for n in lengths]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_parts", "is_onesided"), [(1, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("length", [None, 12, 7])
def test_transforms_of_open_lengths(length, is_onesided, n_parts, dtype):
    """The transform is computed in each run, of an axis of any length, cut or padded to a given one."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("DFT", ["y", *(["n"] if length else [])], ["z"], axis=1, onesided=is_onesided),
        helper.make_node("ReduceSumSquare", ["z"], ["power"], axes=[-1], keepdims=0),
    ]
    held = {"two": dtype(2), **({"n": np.array(length)} if length else {})}
    feeds = signals(n_parts, 9, 16, 9, 1, 5, dtype=dtype)
    compared(nodes, feeds, ["z", "power"], held, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_parts", [1, 2])
def test_inverse_transforms(n_parts):
    nodes = [helper.make_node("DFT", ["x"], ["z"], axis=1, inverse=1)]
    compared(nodes, signals(n_parts, 9, 16, 9), ["z"])


@pytest.mark.parametrize("has_window", [False, True])
@pytest.mark.parametrize("is_onesided", [0, 1])
def test_short_transforms_of_open_lengths(is_onesided, has_window):
    """Frames overlap; the last one ends before the signal does. The window may be computed."""
    nodes = [helper.make_node("Abs", ["w"], ["window"])] if has_window else []
    inputs = ["x", "step", "window" if has_window else "", "" if has_window else "length"]
    nodes.append(helper.make_node("STFT", inputs, ["z"], onesided=is_onesided))
    held = {"step": np.array(3), "length": np.array(8), "w": RNG.standard_normal(8).astype(np.float32)}
    compared(nodes, signals(1, 20, 31, 20, 8), ["z"], held, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceSum", "ReduceSumSquare"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_sums_of_pairs_after_other_lengths(operator, keepdims):
    """A graph that adds the elements of a short axis is not used for a longer one."""
    axes = {} if operator == "ReduceSum" else {"axes": [-1]}
    nodes = [
        helper.make_node("Tanh", ["x"], ["y"]),
        helper.make_node(operator, ["y"] if axes else ["y", "last"], ["sum"], keepdims=keepdims, **axes),
    ]
    shapes = [(3, 4, 2), (5, 4, 2), (3, 4, 3), (3, 4, 2), (3, 4, 7), (2, 2, 1), (1, 3, 2)]
    feeds = [{"x": RNG.standard_normal(shape).astype(np.float32)} for shape in shapes]
    compared(nodes, feeds, ["sum"], {} if axes else {"last": np.array([-1])})
