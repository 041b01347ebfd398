"""Winograd convolutions compared with direct sums: locality, signs, zeros and exactness, forward and backward."""

from collections.abc import Callable

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor.ext_utils import get_extension_context

pytestmark = pytest.mark.usefixtures("convolution_settings")

Sums = dict[str, np.ndarray]
"""Results by name: the output, both gradients, and the output of a transposed convolution."""

SHAPES = {
    # Images, channels, maps, groups, height and width, padding, dilation.
    "many tiles": (2, 32, 40, 1, (25, 22), 1, (1, 1)),
    "groups": (2, 48, 72, 2, (17, 15), 0, (1, 1)),
    "few tiles": (1, 64, 64, 1, (8, 8), 1, (1, 1)),
    "small image": (2, 24, 40, 1, (9, 7), 2, (1, 1)),
    "odd sides": (2, 24, 32, 1, (25, 33), 1, (1, 1)),
    "dilated rows": (2, 32, 40, 1, (25, 22), 1, (2, 1)),
    "dilated, few tiles": (1, 64, 64, 1, (13, 7), 2, (3, 1)),
    "dilated columns": (2, 32, 40, 1, (22, 25), 1, (1, 2)),
    "dilated both ways": (2, 64, 48, 1, (25, 38), 4, (2, 3)),
    "dilated groups": (1, 96, 64, 2, (32, 32), 8, (8, 8)),
}
"""Sizes of convolutions of 3 by 3."""


def arrays(shape: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns random input, weight and output gradient for a named shape."""
    n, c, o, group, (h, w), pad, dilation = SHAPES[shape]
    r = np.random.default_rng(seed)
    outputs = (n, o, h + 2 * pad - 2 * dilation[0], w + 2 * pad - 2 * dilation[1])
    return tuple(r.normal(size=s).astype(np.float32) for s in ((n, c, h, w), (o, c // group, 3, 3), outputs))


def sums(
    shape: str,
    x: np.ndarray,
    w: np.ndarray,
    gy: np.ndarray,
    algorithm: str = "auto",
    threads: int = 1,
    kind: str = "float",
) -> Sums:
    """Returns the output, both gradients, and the output of a transposed convolution, by one algorithm."""
    _, _, _, group, _, pad, dilation = SHAPES[shape]
    nn.set_conv_algorithm(algorithm)
    nn.set_num_threads(threads)
    with nn.context_scope(get_extension_context("cpu", type_config=kind)):
        vx, vw = (nn.Variable.from_numpy_array(v, need_grad=True) for v in (x, w))
        y = F.convolution(vx, vw, pad=(pad, pad), dilation=dilation, group=group)
        y.forward()
        vx.g, vw.g = 0, 0
        y.backward(nn.NdArray.from_numpy_array(gy))
        vy = nn.Variable.from_numpy_array(gy)
        back = F.deconvolution(vy, vw, pad=(pad, pad), dilation=dilation, group=group)
        back.forward()
        found = {"output": y, "deconvolution": back}
        grads = {"gradient of x": vx, "gradient of w": vw}
        return {k: np.array(v.d, np.float64) for k, v in found.items()} | {
            k: np.array(v.g, np.float64) for k, v in grads.items()
        }


def check(shape: str, x: np.ndarray, w: np.ndarray, gy: np.ndarray, tolerance: float = 1e-5) -> None:
    """Asserts that results equal direct sums up to rounding, where those are finite, for 1 and 2 threads."""
    with np.errstate(all="ignore"):
        exact = sums(shape, x, w, gy, "direct", kind="double")
        # The error bound of a tile uses its largest weight, because the transform mixes neighbours.
        wide = np.broadcast_to(np.abs(w).max((2, 3), keepdims=True), w.shape).copy()
        sizes = sums(shape, np.abs(x), wide, np.abs(gy), "direct", kind="double")
        rows, columns = SHAPES[shape][-1]
        padded = np.pad(np.abs(gy), ((0, 0), (0, 0), (rows, rows), (columns, columns)))
        window = (2 * rows + 1, 2 * columns + 1)
        near = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3)).max((4, 5))
        sizes["gradient of w"] = sums(shape, np.abs(x), wide, near, "direct", kind="double")["gradient of w"]
        direct = sums(shape, x, w, gy, "direct")
        first = sums(shape, x, w, gy)
        second = sums(shape, x, w, gy, threads=2)
        for name, got in first.items():
            np.testing.assert_array_equal(got, second[name], err_msg=f"{name}: 1 and 2 threads")
            is_number = np.isfinite(direct[name])
            np.testing.assert_array_equal(got[~is_number], direct[name][~is_number], err_msg=name)
            assert np.isfinite(got[is_number]).all(), name
            error = np.abs(got - exact[name])[is_number]
            most = (tolerance * sizes[name] + 1e-44)[is_number]
            assert (error <= most).all(), (
                f"{name}: {(error > most).sum()} results are wrong, {(error / most).max():.3g}"
            )


def put(value: float, *, into: str, at: float) -> Callable[..., None]:
    """Returns a function that writes `value` into the array `into`, at the relative position `at`."""

    def change(**arrays: np.ndarray) -> None:
        """Writes the value into the chosen array."""
        flat = arrays[into].reshape(-1)
        flat[int(at * (flat.size - 1))] = value

    return change


def sparse(*, x: np.ndarray, w: np.ndarray, gy: np.ndarray) -> None:
    """Makes some rows zero, and the output gradient zero except for one position."""
    x[:, :, 3:6] = 0
    x[:, 0, 4, 3] = 2.0
    keep = gy[:, :, 2, 3].copy()
    gy[:] = 0
    gy[:, :, 2, 3] = keep


def positive(*, x: np.ndarray, w: np.ndarray, gy: np.ndarray) -> None:
    """Makes sparse arrays with positive elements only."""
    sparse(x=x, w=w, gy=gy)
    for v in (x, w, gy):
        np.abs(v, out=v)


def tiny(*, x: np.ndarray, w: np.ndarray, gy: np.ndarray) -> None:
    """Scales arrays to very small numbers, with one larger element."""
    x *= np.float32(1e-25)
    gy *= np.float32(1e-28)
    x[0, 0, 4, 4] = 1e-12


def unlike_channels(*, x: np.ndarray, w: np.ndarray, gy: np.ndarray) -> None:
    """Gives one channel large numbers and small weights, which must not hide errors in the others."""
    x[:, 0] *= np.float32(1e6)
    w[:, 0] *= np.float32(1e-6)
    x[0, 1, x.shape[2] // 2, x.shape[3] // 2] = 1e5  # every tap sees the middle, in every phase


ODDITIES: dict[str, Callable[..., None]] = {
    f"{value} in {into} at {at}": put(value, into=into, at=at)
    for into in ("x", "gy")
    for value in (np.inf, np.nan, 1e30, 1e6, -1e4)
    for at in (0.0, 0.37, 1.0)
} | {
    **{f"{value} in w": put(value, into="w", at=0.6) for value in (np.inf, np.nan, 1e30)},
    "zeros": sparse,
    "numbers of one sign": positive,
    "tiny numbers": tiny,
    "unlike channels": unlike_channels,
    "nothing odd": lambda **_: None,
}
"""Changes of the random input, weight and output gradient, by name."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("odd", ODDITIES)
def test_a_number_reaches_the_results_that_see_it_alone(odd: str, shape: str) -> None:
    """With infinities, NaN and other odd values, Winograd convolutions agree with direct sums."""
    x, w, gy = arrays(shape)
    ODDITIES[odd](x=x, w=w, gy=gy)
    if odd == "tiny numbers":  # products below the least normal number are rounded by any algorithm
        w *= np.float32(1e6)
    check(shape, x, w, gy)


@pytest.mark.parametrize("factor", [1e-36, 1e-15, 1e15, 1e25])
def test_weights_of_any_size(factor: float) -> None:
    """Results are right for very small and very large weights."""
    x, w, gy = arrays("many tiles")
    check("many tiles", x, w * np.float32(factor), gy)


@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_and_weights_that_are_not_negative_give_no_negative_outputs(shape: str) -> None:
    x, w, gy = arrays(shape)
    w = np.abs(w)
    w[w < 1.5] = 0  # few taps overlap the image
    x = np.maximum(x - 1, 0)
    for name, got in sums(shape, x, w, np.maximum(gy - 1, 0)).items():
        direct = sums(shape, x, w, np.maximum(gy - 1, 0), "direct")[name]
        assert (got >= 0).all(), name
        np.testing.assert_array_equal(got == 0, direct == 0, err_msg=name)


COARSE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "binary": lambda r, shape: r.choice([-1.0, 1.0], shape),
    "ternary": lambda r, shape: r.choice([-0.5, 0.0, 0.5], shape),
    "powers of two": lambda r, shape: r.choice([-1, 1], shape) * 2.0 ** r.integers(-4, 4, shape),
    "small integers": lambda r, shape: r.integers(-9, 10, shape),
    "fixed point": lambda r, shape: r.integers(-255, 256, shape) / 64,
}
"""Numbers of few binary digits, by name. Their direct sums are exact in float32."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("numbers", COARSE)
def test_sums_of_numbers_of_few_digits_are_exact(numbers: str, shape: str) -> None:
    """Networks of binary numbers depend on exact sums: equal sums must stay equal."""
    r = np.random.default_rng(1)
    x, w, gy = (COARSE[numbers](r, v.shape).astype(np.float32) for v in arrays(shape))
    exact = sums(shape, x, w, gy, kind="double")
    for name, got in sums(shape, x, w, gy).items():
        np.testing.assert_array_equal(got, exact[name], name)


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_types_of_16_bits(kind: str) -> None:
    """In 16-bit types, Winograd convolutions agree with direct sums, infinities included."""
    # Operands that bfloat16 holds.
    x, w, gy = ((a.view(np.uint32) & 0xFFFF0000).view(np.float32) for a in arrays("many tiles"))
    x[0, 0, 9, 9] = np.inf
    direct, got = (sums("many tiles", x, w, gy, how, kind=kind) for how in ("direct", "auto"))
    for name, expected in direct.items():
        is_number = np.isfinite(expected)
        np.testing.assert_array_equal(got[name][~is_number], expected[~is_number], err_msg=name)
        unit = {"half": 2.0**-10, "bfloat16": 2.0**-7}[kind]
        np.testing.assert_allclose(got[name][is_number], expected[is_number], rtol=unit, atol=1e-3, err_msg=name)


def test_epilogues_static_eager_and_cleared_runs_agree_on_uneven_tiles() -> None:
    inputs, weights, _ = arrays("many tiles")
    inputs[0, 0, 9, 9], inputs[1, :, :8] = 1e8, 0
    biases = np.linspace(-1, 1, 40, dtype=np.float32)
    x, w, b = (nn.Variable.from_numpy_array(v) for v in (inputs, weights, biases))

    def net() -> nn.Variable:
        """Returns a convolution with bias and ReLU."""
        return F.relu(F.convolution(x, w, b, pad=(1, 1)))

    with nn.auto_forward():
        eager = net().d.copy()
    static = net()
    for _ in range(3):  # weights are kept from the third run on
        static.forward(clear_no_need_grad=True)
        np.testing.assert_array_equal(static.d, eager)
    nn.set_conv_algorithm("direct")
    static.forward()
    far = np.ones(eager.shape, bool)
    far[0, :, 8:11, 8:11] = False
    np.testing.assert_allclose(eager[far], static.d[far], atol=1e-4)
    np.testing.assert_array_equal(eager[1, :, :7], static.d[1, :, :7])


@pytest.mark.parametrize("odd", [np.inf, 1e6])
def test_weights_that_are_kept_find_uneven_tiles(odd: float) -> None:
    """With a cached weight, tiles with a huge element are still computed directly."""
    x, w, _ = arrays("few tiles")
    vx, vw = nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(w)
    y = F.convolution(vx, vw, pad=(1, 1))
    for run in range(5):
        changed = x.copy()
        changed[0, run, 4, 4] = odd
        vx.d = changed
        y.forward()
        once = F.convolution(nn.Variable.from_numpy_array(changed), vw, pad=(1, 1))
        once.forward()
        np.testing.assert_array_equal(y.d, once.d)
        assert np.isfinite(y.d[:, :, :3]).all()


def test_the_error_is_at_most_twice_the_error_of_direct_sums() -> None:
    """On normally distributed numbers, the root of the mean squared error and, on average, the largest error.

    Images are few or many, and channels up to 512, as sums of more terms round more.
    """
    for images, channels, side, dilation in (
        (4, 24, 32, 1), (4, 32, 32, 1), (2, 64, 40, 1), (1, 64, 56, 1), (48, 24, 24, 1), (1, 256, 14, 1),
        (1, 256, 8, 1), (4, 256, 8, 1), (1, 512, 8, 1), (2, 64, 48, 2), (1, 64, 64, 8), (2, 32, 48, 4),
    ):  # fmt: skip
        shape = f"{images} {channels} {side} {dilation}"
        SHAPES[shape] = (images, channels, channels, 1, (side, side), dilation, (dilation, dilation))
        largest: dict[str, list[tuple[float, float]]] = {}
        try:
            for seed in range(3, 9):
                x, w, gy = arrays(shape, seed)
                exact = sums(shape, x, w, gy, "direct", kind="double")
                direct, got = sums(shape, x, w, gy, "direct"), sums(shape, x, w, gy)
                for name, t in exact.items():
                    a, b = direct[name] - t, got[name] - t
                    ratio = np.sqrt(np.mean(b**2) / np.mean(a**2))
                    assert ratio <= 2, f"{shape}, seed {seed}, {name}: {ratio:.2f}"
                    largest.setdefault(name, []).append((np.abs(a).max(), np.abs(b).max()))
        finally:
            del SHAPES[shape]
        for name, pairs in largest.items():
            a, b = np.mean(pairs, axis=0)
            assert b <= 2 * a, f"{shape}, {name}: {b / a:.2f}"
