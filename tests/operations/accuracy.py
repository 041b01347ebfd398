"""Measures the error of float32 results against float64, in units in the last place (ulp).

Used by `tools/make-accuracy` and by the test of the page that it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cases import arithmetic, elementwise
from scipy import special
from support import TABLE, call, certain

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases import Row

STEP = 1009
"""The sampled fraction of all 32-bit patterns is 1 / `STEP`."""

EXTREMES = np.array(
    [0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-20, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.4028235e38, np.inf, np.nan], np.float32
)
"""Extra inputs, sampled with both signs."""

FOLDS = {"crelu", "celu", "add_n", "mul_n", "clip_by_norm"}
"""Operations of the elementwise families that are not functions of a single element."""

SUMS_OF_PRODUCTS = {
    "affine",
    "batch_cholesky",
    "batch_det",
    "batch_inv",
    "batch_logdet",
    "batch_matmul",
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "block_quantized_affine",
    "convolution",
    "deconvolution",
    "deformable_convolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
    "dot",
    "fused_convolution",
    "gru",
    "inq_affine",
    "inq_convolution",
    "lstm",
    "modulated_convolution",
    "onnx_resize",
    "rnn",
    "scaled_dot_product_attention",
    "spectral_norm",
}
"""Operations whose bits depend on the instruction set, with the number of products in each sum."""


def tanh_shrink(x: np.ndarray) -> np.ndarray:
    """NumPy reference of `tanh_shrink`, by its series near zero, where `x - tanh(x)` cancels."""
    near = np.where(np.abs(x) < 0.01, x, 0.0)
    return np.where(np.abs(x) < 0.01, near**3 * (1 / 3 - near**2 * (2 / 15 - near**2 * 17 / 315)), x - np.tanh(x))


BETTER = {
    "swish": lambda x: np.maximum(x, -1e300) * special.expit(x),
    "gelu": lambda x: np.maximum(x, -1e300) * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "mish": lambda x: np.maximum(x, -1e300) * np.tanh(np.logaddexp(0, x)),
    "tanh_shrink": tanh_shrink,
    "softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
    "sinc": lambda x: np.where(x == 0, 1.0, np.sin(x) / np.where(x == 0, 1.0, x)),
    "sign": lambda x: np.where(x == 0, 1.0, np.sign(x)),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "relu": lambda x: np.where(x < 0, 0.0, x),
    "elu": lambda x: np.where(x >= 0, x, np.expm1(x)),
}
"""References that are accurate for all inputs. The references of the table are accurate only for its own inputs."""


def sample(step: int) -> np.ndarray:
    """Returns every `step`-th float32 bit pattern, together with `EXTREMES` of both signs."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([bits.view(np.float32), EXTREMES, -EXTREMES])


def units(got: np.ndarray, exact: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Returns the error in ulp of `of`. Infinite if exactly one of result and exact value is not finite."""
    with np.errstate(over="ignore"):
        nearest, place = exact.astype(np.float32), np.spacing(np.abs(of.astype(np.float32))).astype(np.float64)
    same = (got == nearest) & ~np.isfinite(nearest) | np.isnan(got) & np.isnan(exact)
    error = np.abs(got.astype(np.float64) - exact) / place
    beyond = ~np.isfinite(got) | ~np.isfinite(nearest)
    return np.where(same, 0.0, np.where(beyond, np.inf, error))


def of_each() -> Iterator[tuple[str, dict[str, object], Callable[[np.ndarray], np.ndarray]]]:
    """Yields all functions of a single element: name, arguments and reference."""
    seen = set()
    for row in (*elementwise.ROWS, *arithmetic.ROWS):
        about = (row.name, str(row.args))
        if about in seen or row.shares or len(row.inputs) != 1 or row.name in FOLDS:
            continue
        with np.errstate(all="ignore"):
            if np.shape(row.reference(np.ones(7), **row.args)) != (7,):
                continue
        seen.add(about)
        reference = row.reference if row.args else BETTER.get(row.name, row.reference)
        # Use arguments that float32 represents exactly, so that their rounding does not count as an error.
        args = {key: float(np.float32(v)) if isinstance(v, float) else v for key, v in row.args.items()}
        yield row.name, args, lambda x, f=reference, args=args: f(x, **args)


def largest(name: str, args: dict[str, object], reference: Callable[..., np.ndarray], step: int) -> tuple[float, float]:
    """Returns the largest error of an elementwise function in ulp, and the input where it occurs."""
    x = sample(step)
    y = getattr(F, name)(nn.Variable.from_numpy_array(x), **args)
    y.forward()
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.float64)), np.float64)
        error = units(y.d, exact, exact)
    at = int(np.argmax(error))
    return float(error[at]), float(x[at])


def of_row(row: Row) -> float:
    """Returns the largest error of the outputs of a row, in ulp of the largest element of each output."""
    real = [x is not None and x.dtype.kind == "f" for x in row.inputs]
    single = [x.astype(np.float32) if r else x for x, r in zip(row.inputs, real, strict=True)]
    ys = call(row, [x if x is None else nn.Variable.from_numpy_array(x) for x in single])
    for y in ys:
        y.forward()
    exact = row.reference(*(x.astype(np.float64) if r else x for x, r in zip(single, real, strict=True)), **row.args)
    worst = 0.0
    for y, e in zip(ys, map(np.asarray, exact if isinstance(exact, tuple) else (exact,)), strict=True):
        finite = np.abs(e[np.isfinite(e)])
        if e.dtype.kind == "f" and finite.size:
            worst = max(worst, float(units(y.d, e, np.full(e.shape, finite.max())).max()))
        else:
            assert np.array_equal(y.d, e, equal_nan=e.dtype.kind == "f"), row
    return worst


def of_rows() -> dict[str, float]:
    """Returns, by name, the largest error over the rows of each operation that is not elementwise."""
    each = {name for name, _, _ in of_each()}
    rows = {name: list(filter(certain, rows)) for name, rows in TABLE.items() if name not in each}
    return {name: max(map(of_row, some)) for name, some in rows.items() if some}


def of_sums(n: int) -> dict[str, float]:
    """Returns, by name, the errors of reductions of `n` numbers between 0 and 1."""
    x = np.random.default_rng(5).random(n, np.float32)
    exact = x.astype(np.float64)
    found = {}
    for name, value in (("sum", exact.sum()), ("mean", exact.mean()), ("norm", np.sqrt((exact * exact).sum()))):
        y = getattr(F, name)(nn.Variable.from_numpy_array(x))
        y.forward()
        found[name] = float(units(y.d, np.asarray(value), np.asarray(value)))
    return found


__all__ = ["STEP", "SUMS_OF_PRODUCTS", "largest", "of_each", "of_row", "of_rows", "of_sums"]
