"""Rows of quantized, binary and pruned values, and of layers with such weights."""

from __future__ import annotations

import numpy as np

from . import SHAPES, Row, sample, unary
from .layers import affine, convolution


def rounded(x):
    """Rounds to the nearest integer, halves away from zero."""
    return np.trunc(x + np.copysign(0.5, x))


def clipped(yes):
    """Returns the straight-through gradient of a binarization: `gy`, times `yes`, where the input is in (-1, 1)."""
    return lambda gy, x: (np.where(np.abs(x) < 1, yes * gy, 0.0),)


def fixed_point_range(sign=True, n=8, delta=0.0625):
    """Returns the smallest and the largest number of an n-bit fixed-point format with the step `delta`."""
    return (-(2 ** (n - 1) - 1) * delta, (2 ** (n - 1) - 1) * delta) if sign else (0.0, (2**n - 1) * delta)


def fixed_point(x, sign=True, n=8, delta=0.0625, ste_fine_grained=True):
    """NumPy reference of `fixed_point_quantize`."""
    return np.clip(rounded(x / delta) * delta, *fixed_point_range(sign, n, delta))


def fixed_point_gradient(ste_fine_grained=True, **args):
    """Returns the straight-through gradient of `fixed_point_quantize`."""
    low, high = fixed_point_range(**args)
    return lambda gy, x: (np.where((x >= low) & (x <= high), gy, 0.0) if ste_fine_grained else gy,)


def pow2_bits(sign=True, with_zero=True, n=8):
    """Returns the number of bits of the exponent: all `n` except those for the sign and for zero."""
    return n - sign - with_zero


def pow2(x, sign=True, with_zero=True, n=8, m=1, ste_fine_grained=True):
    """NumPy reference of `pow2_quantize`."""
    low = m - (2 ** pow2_bits(sign, with_zero, n) - 1)
    size = np.abs(x)
    with np.errstate(divide="ignore"):
        q = 2.0 ** np.clip(np.round(np.log2(size)), low, m)
    if with_zero:
        q = np.where(size < 2.0**low / np.sqrt(2), 0.0, q)
    return np.where(x < 0, -q if sign else (0.0 if with_zero else 2.0**low), q)


def pow2_gradient(sign=True, m=1, ste_fine_grained=True, **_):
    """Returns the straight-through gradient of `pow2_quantize`."""

    def gradient(gy, x):
        """Returns `gy` within the range, or everywhere without `ste_fine_grained`."""
        within = (np.abs(x) < 2.0 ** (m + 0.5)) & (sign | (x >= 0))
        return (np.where(within, gy, 0.0) if ste_fine_grained else gy,)

    return gradient


def off_thresholds(*shape, seed=0):
    """Returns numbers in [-4, 4], none near the geometric mean of two neighbouring powers of two."""
    x = sample(*shape, low=-4, high=4, seed=seed)
    exponent = np.log2(np.abs(x) + 1e-9)
    near = np.abs(exponent - np.floor(exponent) - 0.5) < 0.1
    return np.where(near, x * 1.2, x)


def prune(x, rate=0.9):
    """NumPy reference of `prune`."""
    if not x.size or rate == 1:
        return np.zeros_like(x)
    threshold = np.sort(np.abs(x).ravel())[int((x.size - 1) * rate)]
    return np.where(np.abs(x) < threshold, 0.0, x)


def quantize_linear(x, scale, zero_point, round_mode="HALF_AWAY_FROM_ZERO", narrow_range=False, dtype=1):
    """NumPy reference of `quantize_linear`."""
    to_whole = rounded if round_mode == "HALF_AWAY_FROM_ZERO" else np.round
    low, high = (-128 + narrow_range, 127) if dtype == 1 else (0 + narrow_range, 255)
    return np.clip(to_whole(x / scale) + np.clip(to_whole(zero_point), low, high), low, high)


def levels(*shape, low, high, seed=0):
    """Returns numbers within 0.3 of an integer, so that rounding them is stable."""
    x = sample(*shape, low=low, high=high, seed=seed)
    return np.round(x) + 0.3 * np.sin(7 * x)


def ranges(x, qr_min, qr_max, ql_min, ql_max, decay=0.999, x_min_max=False, ema=False, eps=0.01, **_):
    """Returns the smallest number, the largest number and the step of the levels of `min_max_quantize`."""
    axes = tuple(i for i, n in enumerate(ql_min.shape) if n == 1)
    if x_min_max and x.size:
        low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
        keep = decay if ema else 0.0
        qr_min, qr_max = keep * qr_min + (1 - keep) * low, keep * qr_max + (1 - keep) * high
    qr_max = np.maximum(qr_max, qr_min + eps)
    scale = (qr_max - qr_min) / (ql_max - ql_min)
    zero = np.clip(rounded(ql_min - qr_min / scale), ql_min, ql_max)
    return (ql_min - zero) * scale, (ql_max - zero) * scale, scale


def min_max(x, *parameters, **args):
    """NumPy reference of `min_max_quantize`."""
    low, high, scale = ranges(x, *parameters, **args)
    return rounded((np.clip(x, low, high) - low) / scale) * scale + low


def min_max_gradient(ste_fine_grained=True, **args):
    """Returns the gradient of `min_max_quantize`, also by the bounds if they are learned."""

    def gradient(gy, x, *parameters):
        """Returns the gradients of the input and of the bounds."""
        low, high, _ = ranges(x, *parameters, **args)
        axes = tuple(i for i, n in enumerate(parameters[0].shape) if n == 1)
        gx = np.where((x >= low) & (x <= high), gy, 0.0) if ste_fine_grained else gy
        learned = [(np.where(out, gy, 0.0)).sum(axes, keepdims=True) for out in (x < low, x > high)]
        return (gx,) if args.get("x_min_max") or args.get("ema") else (gx, *learned)

    return gradient


def min_max_rows():
    """Yields rows of `min_max_quantize`."""
    for shape, of in (
        ((4, 3, 5), (1, 1, 1)),
        ((4, 3, 5), (1, 3, 1)),
        ((4, 3), (1, 3)),
        ((2, 1), (2, 1)),
        ((0, 3), (1, 3)),
    ):
        x = sample(*shape)
        parameters = (
            -1.5 - 0.25 * sample(*of) ** 2,
            1.0 + 0.25 * sample(*of, seed=1) ** 2,
            np.zeros(of),
            np.full(of, 255.0),
        )
        for args in (
            {},
            {"ste_fine_grained": False},
            {"ema": True, "eps": 0.02},
            {"x_min_max": True, "decay": 0.9},
            {"x_min_max": True, "ema": True, "decay": 0.9},
        ):
            follows = args.get("x_min_max", False)
            yield Row(
                "min_max_quantize",
                (x, *parameters),
                min_max,
                args,
                by=(0,) if follows or args.get("ema") else (0, 1, 2),
                gradient=min_max_gradient(**args),
                writes=(1, 2) if follows else (),
                tolerance=5e-6,
            )


def signs(w, zero=1.0):
    """Returns the signs of `w`, with `zero` as the sign of 0."""
    return np.where(w > 0, 1.0, np.where(w < 0, -1.0, zero))


def binary_connect(of):
    """Returns the reference of a layer `of` with weights replaced by their signs."""

    def reference(x, w, _, b=None, quantize_zero_to=1.0, **args):
        """NumPy reference of the layer."""
        return of(x, signs(w, quantize_zero_to), b, **args)

    return reference


def scaled(w, rows):
    """Returns the signs of `w`, scaled by the mean magnitude of each row or column."""
    flat = w.reshape(w.shape[0], -1)
    alpha = np.abs(flat).mean(1 if rows else 0, keepdims=True)
    return (signs(w).reshape(flat.shape) * alpha).reshape(w.shape)


def binary_weight(of, rows):
    """Returns the reference of a layer `of` with weights replaced by scaled signs."""

    def reference(x, w, _, __, b=None, quantize_zero_to=1.0, **args):
        """NumPy reference of the layer."""
        return of(x, scaled(w, rows), b, **args)

    return reference


def powers(w, fixed, num_bits=4):
    """Rounds the weights that `fixed` selects to powers of two. The largest weight sets the largest exponent."""
    most = np.abs(w).max() or 1.0
    with np.errstate(divide="ignore"):
        exponent = np.where(w == 0, -100, np.floor(np.log2(np.abs(w) / 0.75)))
    high = np.floor(np.log2(most / 0.75))
    low = high + 1 - 2 ** (num_bits - 2)
    q = np.where(np.abs(w) < 2.0 ** (low - 1), 0.0, np.sign(w) * 2.0 ** np.clip(exponent, low, high))
    return np.where(fixed == 1, q, w)


def incremental(of):
    """Returns the reference of a layer `of` in its first forward run by incremental quantization."""

    def reference(x, w, fixed, b=None, num_bits=4, inq_iterations=(), selection_algorithm="", seed=-1, **args):
        """NumPy reference of the layer."""
        fixed = fixed.copy()
        if 0 in inq_iterations:
            if inq_iterations[-1] == 0:
                fixed[...] = 1
            else:
                left = [i for i in np.argsort(-np.abs(w), axis=None, kind="stable") if fixed.flat[i] == 0]
                fixed.flat[left[: max(1, len(left) // 2)]] = 1
        return of(x, powers(w, fixed, num_bits), b, **args)

    return reference


def by_units(f, gy, x):
    """Returns the gradient of a function `f` that is linear in `x`, by applying it to unit vectors."""
    gx = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[at] = 1.0
        gx[at] = (gy * f(unit)).sum()
    return gx


def through(of, place, bias):
    """Returns the gradient of the layer `of`, whose weight `w` is used as `place(w)`.

    Argument `bias` is the bias's number.
    """

    def gradient(gy, x, w, *others):
        """Returns the gradients of the layer's inputs."""
        w = place(w, *others)
        found = [by_units(lambda x: of(x, w), gy, x), by_units(lambda w: of(x, w), gy, w)]
        if len(others) > bias - 2:
            zero = of(0 * x, w)
            found.append(by_units(lambda b: zero + of(0 * x, w, b), gy, others[bias - 2]))
        return tuple(found)

    return gradient


LAYERS = (
    (affine, "affine", False, ((2, 3), (3, 4), (4,), {})),
    (affine, "affine", False, ((2, 3, 2), (2, 3), (3,), {"base_axis": 2})),
    (affine, "affine", False, ((1, 1), (1, 1), (1,), {})),
    (affine, "affine", False, ((0, 3), (3, 2), (2,), {})),
    (
        convolution,
        "convolution",
        True,
        ((2, 2, 5, 4), (4, 1, 3, 2), (4,), {"pad": (1, 0), "stride": (2, 1), "group": 2}),
    ),
    (convolution, "convolution", True, ((2, 1, 3, 6), (2, 3, 2), (2,), {"base_axis": 2, "dilation": (2,)})),
    (convolution, "convolution", True, ((0, 2, 3), (1, 2, 3), (1,), {})),
)
"""Reference of a layer, its name, True if outputs are the first axis of the weight, and shapes and arguments."""


def layer_rows():
    """Yields rows of layers with quantized weights."""
    for of, kind, rows, (x, w, b, args) in LAYERS:
        xs, weight = sample(*x), sample(*w, seed=1, away=(0.0,))
        # Keep away from the midpoint between two powers of two.
        weight = np.where(np.abs(np.log2(np.abs(weight) / 0.75) % 1 - 0.5) > 0.4, weight * 1.1, weight)
        weight.flat[:1] = 1.2
        zeros, bias = np.zeros(w), sample(*b, seed=2)
        outputs = w[0] if rows else int(np.prod(w[1:]))
        bound = lambda *a, of=of, args=args: of(*a, **args)  # noqa: E731
        for more in (bias, None):
            last = () if more is None else (more,)
            yield Row(
                f"binary_connect_{kind}",
                (xs, weight, zeros, *last),
                binary_connect(of),
                args | {"quantize_zero_to": 0.5},
                by=(0, 1, 3)[: 2 + len(last)],
                gradient=through(bound, lambda w, *_: signs(w), 3),
                writes=(2,),
                tolerance=1e-5,
            )
            yield Row(
                f"binary_weight_{kind}",
                (xs, weight, zeros, np.zeros(outputs), *last),
                binary_weight(of, rows),
                args | {"quantize_zero_to": 1.0},
                by=(0, 1, 4)[: 2 + len(last)],
                gradient=through(bound, lambda w, *_, rows=rows: scaled(w, rows), 4),
                writes=(2, 3),
                tolerance=1e-5,
            )
            for fixed, how in (
                (zeros, {}),
                (np.ones(w), {"num_bits": 5, "selection_algorithm": "random", "seed": 4}),
                (zeros, {"inq_iterations": (0,)}),
            ):
                place = lambda w, fixed, *_, how=how: powers(  # noqa: E731
                    w, np.ones_like(fixed) if how.get("inq_iterations") else fixed, how.get("num_bits", 4)
                )
                yield Row(
                    f"inq_{kind}",
                    (xs, weight, fixed, *last),
                    incremental(of),
                    args | how,
                    by=(0, 1, 3)[: 2 + len(last)],
                    gradient=through(bound, place, 3),
                    writes=(1, 2),
                    tolerance=1e-5,
                )


SCALE_SHAPES = (
    ((4, 3, 5), (1, 3, 1)),
    ((4, 3), (1, 3)),
    ((2, 3), (2, 3)),
    ((), ()),
    ((1,), (1,)),
    ((0, 3), (1, 1)),
)
"""Shapes of an array, and of its scales and zero points."""
ROWS: list[Row] = [
    *unary("binary_sigmoid", lambda x: np.where(x > 0, 1.0, 0.0), away=(-1.0, 0.0, 1.0), gradient=clipped(0.5)),
    *unary("binary_tanh", lambda x: np.where(x > 0, 1.0, -1.0), away=(-1.0, 0.0, 1.0), gradient=clipped(1.0)),
    *(
        Row(
            "fixed_point_quantize",
            (sample(*s),),
            fixed_point,
            args,
            gradient=fixed_point_gradient(**args),
            tolerance=2e-6,
        )
        for s in SHAPES
        for args in (
            {},
            {"n": 4, "delta": 0.03125, "sign": True},
            {"n": 3, "delta": 0.125, "sign": False},
            {"n": 5, "ste_fine_grained": False},
        )
    ),
    *(
        Row("pow2_quantize", (off_thresholds(*s),), pow2, args, gradient=pow2_gradient(**args))
        for s in SHAPES
        for args in (
            {},
            {"n": 3, "m": 0},
            {"n": 7, "m": 1, "sign": False, "with_zero": False},
            {"n": 4, "m": -1, "sign": False},
            {"n": 4, "with_zero": False, "ste_fine_grained": False},
        )
    ),
    Row(
        "pow2_quantize",
        (np.array([0.0, -0.0, 1e-30, -1e-30]),),
        pow2,
        {"n": 4, "with_zero": False},
        gradient=pow2_gradient(),
    ),
    *(
        Row("prune", (sample(*s),), prune, args, gradient=lambda gy, x: (gy,))
        for s in SHAPES
        for args in ({}, {"rate": 0.5}, {"rate": 0.0}, {"rate": 1.0})
    ),
    *(
        Row(
            "quantize_linear",
            (levels(*s, low=-150, high=300) * np.full(of, 0.5), np.full(of, 0.5), levels(*of, low=-3, high=9, seed=1)),
            quantize_linear,
            args,
            by=(0,),
            gradient=lambda gy, x, scale, zero: (gy / scale,),
        )
        for s, of in SCALE_SHAPES
        for args in ({}, {"round_mode": "HALF_TO_EVEN", "narrow_range": True}, {"dtype": 2})
    ),
    *(
        Row(
            "dequantize_linear",
            (levels(*s, low=-90, high=90), sample(*of, low=0.1, high=2), levels(*of, low=-3, high=9, seed=1)),
            lambda x, scale, zero: (x - zero) * scale,
            by=(0,),
            tolerance=4e-6,
        )
        for s, of in SCALE_SHAPES
    ),
    *min_max_rows(),
    *layer_rows(),
]
