"""`matmul` and `dot` for arrays with any number of axes, by `affine` and `batch_matmul`."""

from __future__ import annotations

from typing import Any

from .. import _core

f = _core.functions


class ScalarError(_core.ShapeError, AssertionError):
    """A scalar operand of `matmul`. NNabla's programs expect an AssertionError."""


def matmul(a: Any, b: Any) -> Any:
    """`a @ b`, like NumPy's `matmul`."""
    if not isinstance(b, (_core.Variable, _core.NdArray)):
        return NotImplemented
    if a.ndim == 0 or b.ndim == 0:
        raise ScalarError("matmul: expected arrays with axes, got a scalar; use * instead")
    if a.ndim == 1 and b.ndim == 1:
        agree(a, b, a.shape[0], b.shape[0])
        return f.sum(a * b)
    left, right = a, b
    if a.ndim == 1:
        left = f.reshape(a, (1, a.shape[0]))
    if b.ndim == 1:
        right = f.reshape(b, (b.shape[0], 1))
    agree(a, b, left.shape[-1], right.shape[-2])
    if left.ndim == 2 and right.ndim == 2:
        product = f.affine(left, right)
    else:
        n = max(left.ndim, right.ndim)
        product = f.batch_matmul(lift(left, n), lift(right, n))
    shape = list(product.shape)
    if a.ndim == 1:
        del shape[-2]
    if b.ndim == 1:
        del shape[-1]
    return product if len(shape) == product.ndim else f.reshape(product, tuple(shape))


def dot(a: Any, b: Any) -> Any:
    """The product of two arrays, like `numpy.dot`."""
    if a.ndim == 0 or b.ndim == 0:
        return f.mul2(a, b)
    if a.ndim == 1 and b.ndim == 1:
        agree(a, b, a.shape[0], b.shape[0])
        return f.sum(a * b)
    if b.ndim == 1:
        agree(a, b, a.shape[-1], b.shape[0])
        return f.reshape(f.affine(a, f.reshape(b, (b.shape[0], 1)), base_axis=a.ndim - 1), a.shape[:-1])
    agree(a, b, a.shape[-1], b.shape[-2])
    if b.ndim == 2:
        left = a if a.ndim > 1 else f.reshape(a, (1, a.shape[0]))
        product = f.affine(left, b, base_axis=left.ndim - 1)
        return product if a.ndim > 1 else f.reshape(product, (b.shape[1],))
    # The summed axis is the last one of `a`, and is moved to the front of `b`.
    n = b.ndim
    order = (n - 2, *range(n - 2), n - 1)
    flat = f.reshape(f.transpose(b, order), (b.shape[-2], -1))
    left = a if a.ndim > 1 else f.reshape(a, (1, a.shape[0]))
    product = f.affine(left, flat, base_axis=left.ndim - 1)
    return f.reshape(product, (*a.shape[:-1], *b.shape[:-2], b.shape[-1]))


def lift(x: Any, ndim: int) -> Any:
    """An array with leading axes of length one, up to `ndim` axes."""
    return x if x.ndim == ndim else f.reshape(x, (1,) * (ndim - x.ndim) + tuple(x.shape))


def agree(a: Any, b: Any, left: int, right: int) -> None:
    """Raises ShapeError unless the summed axes have equal lengths, `left` and `right`."""
    if left != right:
        raise _core.ShapeError(f"matmul: expected the summed axes to agree, got shapes {a.shape}, {b.shape}")
