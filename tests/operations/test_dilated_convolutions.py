"""Dilated and depthwise convolutions compared with sums in double precision, forward and backward."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

pytestmark = pytest.mark.usefixtures("convolution_settings")

Case = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]

CASES: dict[str, Case] = {
    # Images, channels, maps, groups, size, kernel, dilation, padding.
    "columns": (2, 32, 36, 1, (19, 26), (3, 3), (1, 2), (1, 2)),
    "columns, without padding": (1, 40, 36, 1, (23, 31), (3, 3), (1, 5), (0, 0)),
    "rows": (2, 32, 28, 1, (26, 19), (3, 3), (2, 1), (2, 1)),
    "both axes": (2, 33, 35, 1, (21, 30), (3, 3), (2, 2), (2, 2)),
    "both axes, unlike": (1, 32, 50, 1, (25, 34), (3, 3), (3, 4), (2, 5)),
    "both axes, groups": (1, 64, 48, 2, (32, 33), (3, 3), (4, 8), (4, 8)),
    "both axes, few channels": (1, 5, 7, 1, (33, 29), (3, 3), (2, 3), (2, 3)),
    "few tiles": (1, 64, 64, 1, (7, 7), (3, 3), (2, 2), (2, 2)),
    "pyramid, 6": (1, 40, 48, 1, (33, 33), (3, 3), (6, 6), (6, 6)),
    "pyramid, 12": (1, 40, 48, 1, (33, 33), (3, 3), (12, 12), (12, 12)),
    "pyramid, 18": (2, 40, 48, 1, (17, 33), (3, 3), (18, 18), (18, 18)),
    "more padding than image": (1, 26, 30, 1, (5, 20), (3, 3), (9, 7), (9, 7)),
    "kernel of 5 and 4": (1, 20, 40, 1, (14, 33), (5, 4), (4, 9), (8, 13)),
    "one row of taps": (1, 30, 32, 1, (9, 40), (1, 3), (1, 8), (0, 8)),
    "one column of taps": (1, 30, 32, 1, (40, 9), (3, 1), (8, 1), (8, 0)),
    "sequence": (2, 30, 34, 1, (90,), (3,), (8,), (8,)),
    "sequence, far": (1, 25, 40, 1, (130,), (2,), (64,), (32,)),
    "sequence, groups": (2, 32, 32, 2, (75,), (5,), (16,), (32,)),
    "volume": (1, 12, 26, 1, (6, 9, 12), (3, 3, 3), (2, 2, 2), (2, 2, 2)),
    "volume, frame by frame": (1, 26, 25, 1, (4, 18, 17), (1, 3, 3), (1, 2, 3), (0, 2, 3)),
    "depthwise rows and columns": (2, 6, 6, 6, (21, 35), (3, 3), (2, 4), (2, 4)),
    "depthwise, two maps": (1, 5, 10, 5, (19, 20), (3, 3), (6, 6), (6, 6)),
    "depthwise sequence": (2, 9, 9, 9, (300,), (31,), (1,), (15,)),
    "depthwise sequence, dilated": (1, 9, 9, 9, (211,), (3,), (16,), (16,)),
    "depthwise sequence, short": (3, 40, 40, 40, (33,), (9,), (2,), (8,)),
}
"""Sizes of convolutions."""


def arrays(case: Case) -> list[np.ndarray]:
    """Returns random input, weight, bias and gradient of the output."""
    n, c, m, group, size, kernel, dilation, pad = case
    r = np.random.default_rng(0)
    outputs = [s + 2 * p - d * (k - 1) for s, k, d, p in zip(size, kernel, dilation, pad, strict=True)]
    shapes = ((n, c, *size), (m, c // group, *kernel), (m,), (n, m, *outputs))
    return [r.normal(size=shape).astype(np.float32) for shape in shapes]


def exact(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray, gy: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the output and the gradients in double precision, tap by tap."""
    n, c, m, group, size, kernel, dilation, pad = case
    x, w, b, gy = (v.astype(np.float64) for v in (x, w, b, gy))
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)))
    padded = padded.reshape(n, group, c // group, *padded.shape[2:])
    w = w.reshape(group, m // group, c // group, *kernel)
    gy = gy.reshape(n, group, m // group, *gy.shape[2:])
    y, gx, gw = np.zeros_like(gy), np.zeros_like(padded), np.zeros_like(w)
    axes = "xyz"[: len(kernel)]
    for tap in product(*(range(k) for k in kernel)):
        weights: Any = (..., *tap)
        seen: Any = (..., *(slice(t * d, t * d + o) for t, d, o in zip(tap, dilation, gy.shape[3:], strict=True)))
        y += np.einsum("ngc...,gmc->ngm...", padded[seen], w[weights])
        gx[seen] += np.einsum("ngm...,gmc->ngc...", gy, w[weights])
        gw[weights] = np.einsum(f"ngm{axes},ngc{axes}->gmc", gy, padded[seen])
    inner: Any = (..., *(slice(p, p + s) for p, s in zip(pad, size, strict=True)))
    gx, gy = gx[inner].reshape(x.shape), gy.reshape(n, m, *gy.shape[3:])
    bias = b.reshape(m, *(1,) * len(kernel))
    return {"y": y.reshape(gy.shape) + bias, "x": gx, "w": gw.reshape(m, c // group, *kernel)}


def computed(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray, gy: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the output and the gradients that the library computes."""
    *_, group, _, _, dilation, pad = case
    vx, vw, vb = (nn.Variable.from_numpy_array(v, need_grad=True) for v in (x, w, b))
    y = F.convolution(vx, vw, vb, pad=pad, dilation=dilation, group=group)
    for _ in range(3):  # a function may cache data of its weight after the first run
        y.forward()
    vx.g, vw.g = 0, 0
    y.backward(nn.NdArray.from_numpy_array(gy))
    return {"y": y.d.copy(), "x": vx.g.copy(), "w": vw.g.copy()}


@pytest.mark.parametrize("algorithm", ["auto", "direct", "winograd"])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, algorithm: str) -> None:
    """Errors are small beside the root mean square of the results, and threads change no bit."""
    case = CASES[name]
    inputs = arrays(case)
    expected = exact(case, *inputs)
    nn.set_conv_algorithm(algorithm)
    nn.set_num_threads(1)
    one = computed(case, *inputs)
    nn.set_num_threads(2)
    two = computed(case, *inputs)
    for which, values in expected.items():
        np.testing.assert_array_equal(one[which], two[which], err_msg=f"{which}: 1 and 2 threads")
        error = np.abs(one[which] - values).max() / np.sqrt(np.mean(values**2))
        assert error <= 2e-5, f"{which}: {error:.2g}"


@pytest.mark.parametrize("name", CASES)
def test_a_sum_and_an_activation_follow(name: str) -> None:
    """An addition and an activation are fused with the convolution, or run after it, with the same result."""
    case = CASES[name]
    x, w, b, added = arrays(case)
    *_, group, _, _, dilation, pad = case
    vx, vw, vb, va = (nn.Variable.from_numpy_array(v) for v in (x, w, b, added))
    y = F.relu(F.convolution(vx, vw, vb, pad=pad, dilation=dilation, group=group) + va)
    for _ in range(3):
        y.forward(clear_no_need_grad=True)
        expected = np.maximum(exact(case, x, w, b, added)["y"] + added, 0)
        np.testing.assert_allclose(y.d, expected, atol=2e-5 * float(np.sqrt(np.mean(expected**2))) * 2)


def test_an_infinite_input_reaches_its_outputs_alone() -> None:
    """Outputs that do not read an infinite input stay finite, in every algorithm."""
    case = CASES["both axes"]
    x, w, b, _ = arrays(case)
    *_, group, _, _, dilation, pad = case
    x[0, 3, 10, 12] = np.inf
    found = []
    for algorithm in ("auto", "direct"):
        nn.set_conv_algorithm(algorithm)
        vx, vw, vb = (nn.Variable.from_numpy_array(v) for v in (x, w, b))
        y = F.convolution(vx, vw, vb, pad=pad, dilation=dilation, group=group)
        y.forward()
        found.append(np.isfinite(y.d))
    np.testing.assert_array_equal(*found)
    assert (~found[0]).sum() == 9 * case[2]
