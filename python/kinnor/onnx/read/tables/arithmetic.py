"""Operators that act on each element, and matrix products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ....rewrite.int8.levels import rounded
from ..containers import Absent, Items
from ..tensors import dtype_of
from ..values import Row, Value, note_free, note_lengths
from .building import binary, expand, folded, many, per_channel, reshape, unary

if TYPE_CHECKING:
    from ..values import Node

__all__ = ["ARITHMETIC", "gemm", "matmul"]


def _truncated(x: Variable) -> Variable:
    """Elements rounded toward zero."""
    return F.sign(x, alpha=0.0) * F.floor(F.abs(x))


def _div(node: Node) -> Variable:
    """Builds `Div`."""
    y = F.div2(node.x(0), node.x(1))
    return _truncated(y) if node.is_integer() else y


def _fold_div(node: Node) -> Any:
    """Computes `Div` by NumPy."""
    a, b = node.static(0), node.static(1)
    if a.dtype.kind == "f":
        return a / b
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _mod(node: Node) -> Variable:
    """Builds `Mod`."""
    x, y = node.x(0), node.x(1)
    left = F.mod2(x, y, fmod=True)
    if node.get("fmod", 0):
        return left
    is_other_side = F.less_scalar(F.sign(left, alpha=0.0) * F.sign(y, alpha=0.0), 0.0)
    return F.where(is_other_side, left + y, left)


def _pow(node: Node) -> Variable:
    """Builds `Pow`."""
    if node.value(1).known and node.static(1).size == 1 and not node.static(1).ndim:
        return F.pow_scalar(node.x(0), float(node.static(1)))
    return F.pow2(node.x(0), node.x(1))


def _clip(node: Node) -> Variable:
    """Builds `Clip`."""
    y = node.x(0)
    least, most = node.get("min"), node.get("max")
    if node.has(1) and node.value(1).known:
        least = float(node.static(1).item())
    elif node.has(1):
        y = F.maximum2(y, node.x(1))
    if least is not None and math.isfinite(least):
        y = F.maximum_scalar(y, least)
    if node.has(2) and node.value(2).known:
        most = float(node.static(2).item())
    elif node.has(2):
        y = F.minimum2(y, node.x(2))
    if most is not None and math.isfinite(most):
        y = F.minimum_scalar(y, most)
    return F.identity(y) if y is node.x(0) else y


def _gelu(node: Node) -> Variable:
    """Builds `Gelu`."""
    x = node.x(0)
    if node.get("approximate", "none") == "tanh":
        return F.gelu(x)
    return x * 0.5 * (F.erf(x * math.sqrt(0.5)) + 1.0)


def _biased(node: Node) -> Variable:
    """Builds `BiasGelu` and `Gelu`."""
    x = node.x(0) + node.x(1) if node.has(1) else node.x(0)
    return x * 0.5 * (F.erf(x * math.sqrt(0.5)) + 1.0)


def _fast_gelu(node: Node) -> Variable:
    """Builds `FastGelu`."""
    return F.gelu(node.x(0) + node.x(1) if node.has(1) else node.x(0))


def _hard_sigmoid(node: Node) -> Any:
    """Builds `HardSigmoid`."""
    slope, shift = node.get("alpha", 0.2), node.get("beta", 0.5)
    if (np.float32(slope), shift) == (np.float32(0.2), 0.5):
        return F.hard_sigmoid(node.x())
    y = node.x() * slope + shift
    return F.minimum_scalar(F.maximum_scalar(y, 0.0), 1.0)


def _celu(node: Node) -> Any:
    """Builds `Celu`."""
    x, alpha = node.x(), node.get("alpha", 1.0)
    return F.maximum_scalar(x, 0.0) + F.minimum_scalar(
        (F.exp(F.minimum_scalar(x, 0.0) * (1.0 / alpha)) - 1.0) * alpha, 0.0
    )


def _prelu(node: Node) -> Variable:
    """Builds `PRelu`."""
    x, slope = node.x(0), node.x(1)
    if node.version < 7:
        note_lengths()
        slope = per_channel(slope, 1, x.ndim)
    if slope.size != 1:
        note_lengths()  # the lengths decide which function it is
        if not node.value(1).is_computed and not node.value(1).has_lengths:
            note_free()  # the function refuses the lengths for which it would be another
    wide = [axis - slope.ndim for axis, length in enumerate(slope.shape) if length != 1]
    if x.ndim and (not wide or (len(wide) == 1 and slope.size == x.shape[wide[0]])):
        return F.prelu(x, reshape(slope, (slope.size,)), x.ndim + wide[0] if wide else 0)
    # A selection, because an infinite slope times the zero of a positive element is NaN.
    return F.where(F.greater_scalar(x, 0.0), x, slope * F.minimum_scalar(x, 0.0))


def _shrink(node: Node) -> Any:
    """Builds `Shrink`."""
    x, bias, edge = node.x(), node.get("bias", 0.0), node.get("lambd", 0.5)
    low, high = F.less_scalar(x, -edge), F.greater_scalar(x, edge)
    return F.where(low, x + bias, F.where(high, x - bias, F.constant(0.0, x.shape)))


def _thresholded(node: Node) -> Variable:
    """Builds `ThresholdedRelu`."""
    x = node.x()
    return F.where(F.greater_scalar(x, node.get("alpha", 1.0)), x, F.constant(0.0, x.shape))


def _is_inf(node: Node) -> Variable:
    """Builds `IsInf`."""
    x = node.x()
    found = F.isinf(x)
    if not node.get("detect_negative", 1):
        found = F.logical_and(found, F.greater_scalar(x, 0.0))
    if not node.get("detect_positive", 1):
        found = F.logical_and(found, F.less_scalar(x, 0.0))
    return found


def _where(node: Node) -> Any:
    """Builds `Where`."""
    shapes = [node.value(i).shape for i in range(3)]
    shape = np.broadcast_shapes(*shapes)
    number = next((i for i in (1, 2) if node.value(i).known and node.value(i).static().size == 1), None)
    if number is None or not shape:
        y = F.where(expand(node.x(0), shape), expand(node.x(1), shape), expand(node.x(2), shape))
    else:  # without an array of equal numbers
        condition = node.x(0) if number == 1 else F.logical_not(node.x(0))
        condition = reshape(condition, (1,) * (len(shape) - condition.ndim) + tuple(condition.shape))
        if len(shapes[0]) == len(shape) and shapes[3 - number] == shape:
            note_free()
        y = F.bool_fill(expand(node.x(3 - number), shape), condition, float(node.static(number).item()))
    sources = frozenset[str]().union(*(node.value(i).sources for i in range(3)))
    return Value(y, node.value(1).dtype, sources=sources)


def _halved(x: Variable) -> Variable:
    """Elements rounded to float16. Its gradient is the identity where results are finite."""
    note_lengths()
    at_least, most = 2.0**-14, 65504.0
    exponent = F.floor(F.log(F.maximum_scalar(F.abs(x), at_least)) * (1 / math.log(2)))
    unit = F.r_pow_scalar(F.minimum_scalar(exponent, 15.0) - 10.0, 2.0)
    change = F.where(F.isinf(x), F.constant(0.0, x.shape), rounded(x / unit) * unit - x)
    near = x + F.unlink(change)
    above, below = (F.constant(end, x.shape) for end in (np.inf, -np.inf))
    return F.where(F.greater_scalar(near, most), above, F.where(F.less_scalar(near, -most), below, near))


def _cast(node: Node) -> Any:
    """Builds `Cast` and `CastLike`."""
    target = node.value(1).dtype if node.proto.op_type == "CastLike" else dtype_of(node.get("to"))
    if target.kind not in "biuf":
        raise node.unsupported(f"expected a number type of NumPy, got {target}")
    held = node.value(0)
    if held.known:
        return Value(np.asarray(held.array).astype(target))
    x = held.variable
    if target.kind == "b":
        x = F.not_equal_scalar(x, 0.0)
    elif target.kind in "iu" and held.dtype.kind == "f":
        x = _truncated(x)
    elif target.kind == "f" and target.itemsize == 2 and held.dtype.itemsize > 2:
        x = _halved(x)
    else:
        x = F.identity(x)
    return Value(x, target, sources=held.sources)


def matmul(a: Variable, b: Variable) -> Variable:
    """The matrix product of broadcast stacks, like NumPy's `matmul`.

    Args:
        a: Left factor.
        b: Right factor.
    """
    if a.ndim == 1 or b.ndim == 1:
        note_lengths()
        left = reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
        right = reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
        y = matmul(left, right)
        shape = list(y.shape)
        if b.ndim == 1:
            del shape[-1]
        if a.ndim == 1:
            del shape[-1 if b.ndim == 1 else -2]
        return reshape(y, shape)
    if b.ndim == 2 and a.ndim > 2 and a.size:
        return F.affine(a, b, base_axis=a.ndim - 1)
    if a.ndim != b.ndim or not a.size:
        note_lengths()
    return a @ b


def _matmul(node: Node) -> Variable:
    """Builds `MatMul`."""
    a, b = node.value(0), node.value(1)
    y = matmul(a.variable, b.variable)
    if min(len(a.shape), len(b.shape)) > 1:
        less = a if len(a.shape) < len(b.shape) else b
        if not less.is_computed and not less.has_lengths:  # what gets more axes has a shape that stays
            note_free()
    return y


def gemm(node: Node) -> Variable:
    """The product of two matrices with a bias, as the attributes of a node say it.

    Args:
        node: The node.
    """
    a, b = node.x(0), node.x(1)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if node.value(1).sources or (node.has(2) and node.value(2).sources):
        note_lengths()  # the shape of the bias decides which function it is
    if (
        not node.get("transA", 0)
        and alpha == beta == 1.0
        and node.has(2)
        and node.value(2).shape == (b.shape[0 if node.get("transB", 0) else 1],)
    ):
        return F.affine(a, F.transpose(b, (1, 0)) if node.get("transB", 0) else b, node.x(2))
    y = F.batch_matmul(a, b, transpose_a=bool(node.get("transA", 0)), transpose_b=bool(node.get("transB", 0)))
    y = y if alpha == 1.0 else y * alpha
    if node.has(2) and beta != 0.0:
        c = node.x(2)
        y = y + (c if beta == 1.0 else c * beta)
    return y


def _mean(node: Node) -> Variable:
    """Builds `Mean`."""
    y = node.x(0)
    for i in range(1, len(node.inputs)):
        y = y + node.x(i)
    return y * (1.0 / len(node.inputs))


def _softmax(function: Any) -> Row:
    """A row for softmax or log-softmax. Before version 13, all axes from `axis` on count as one."""

    def build(node: Node) -> Any:
        """Builds the node."""
        x = node.x()
        if node.version >= 13:
            return function(x, axis=node.get("axis", -1))
        axis = node.get("axis", 1) % x.ndim
        if axis == x.ndim - 1:
            return function(x, axis=axis)
        note_lengths()
        flat = reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return reshape(function(flat, axis=1), x.shape)

    return Row(build, is_free=True)


def _hardmax(node: Node) -> Variable:
    """Builds `Hardmax`."""
    x = node.x()
    axis = node.get("axis", -1 if node.version >= 13 else 1) % x.ndim
    if node.version < 13:
        flat = reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return reshape(_top(flat, 1), x.shape)
    return _top(x, axis)


def _top(x: Variable, axis: int) -> Variable:
    """One at the first largest element along an axis, zero elsewhere."""
    if not x.shape[axis]:
        return F.identity(x)
    places = np.arange(x.shape[axis], dtype=np.float32).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    return F.equal(Variable.from_numpy_array(places), F.max(x, axis=[axis], keepdims=True, only_index=True))


_NOT_NEGATIVE = frozenset(["Abs", "Exp", "ReLU", "Sigmoid", "SoftPlus"])
"""Functions whose results are never negative."""

_KEEPS_SIGN = frozenset(["Add2", "AddScalar", "Identity", "Mean", "MulScalar", "PowScalar", "Reshape", "Sum"])
"""Functions whose results are not negative if their inputs are not."""


def _is_not_negative(x: Variable, depth: int = 6) -> bool:
    """True if a variable certainly has no negative elements, as a sum of squares."""
    f, below = x.parent, depth - 1
    if f is None:
        return x.size == 1 and not x.need_grad and bool((x.d >= 0).all())
    kind = f.name
    if kind in _NOT_NEGATIVE or (kind == "Mul2" and f.inputs[0] == f.inputs[1]):
        return True
    if not depth:
        return False
    if kind == "PowScalar" and float(f.args["val"]) % 2 == 0:
        return True
    if kind in ("AddScalar", "MulScalar") and float(f.args["val"]) < 0:
        return False
    return kind in _KEEPS_SIGN and all(_is_not_negative(y, below) for y in f.inputs)


def _sqrt(node: Node) -> Variable:
    """Builds `Sqrt`. The root of negative infinity is NaN, but its power with exponent 0.5 is infinite."""
    x = node.x()
    y = F.pow_scalar(x, 0.5)
    return y if _is_not_negative(x) else y + F.minimum_scalar(x, 0.0) * 0.0


def _dropout(node: Node) -> Any:
    """Builds `Dropout`."""
    if node.has(2) and bool(node.static(2).item()):
        raise node.unsupported("expected training_mode to be off, got True")
    y = F.identity(node.x())
    return (y, np.ones(node.value(0).shape, np.bool_)) if node.n_outputs > 1 else y


def _einsum(node: Node) -> Variable:
    """Builds `Einsum`."""
    return F.einsum(*(node.x(i) for i in range(len(node.inputs))), equation=node.get("equation").replace(" ", ""))


def _identity(node: Node) -> Any:
    """Builds `Identity`."""
    value = node.value(0)
    return value if isinstance(value, (Absent, Items)) else F.identity(value.variable)


ARITHMETIC: dict[tuple[str, str], Row] = {
    ("", "Abs"): unary(F.abs),
    ("", "Acos"): unary(F.acos),
    ("", "Acosh"): unary(F.acosh),
    ("", "Add"): binary(F.add2, np.add),
    ("", "And"): binary(F.logical_and, np.logical_and, np.bool_),
    ("", "Asin"): unary(F.asin),
    ("", "Asinh"): unary(F.asinh),
    ("", "Atan"): unary(F.atan),
    ("", "Atanh"): unary(F.atanh),
    ("", "Cast"): Row(_cast, _cast, is_free=True),
    ("", "CastLike"): Row(_cast, _cast, is_free=True),
    ("", "Ceil"): unary(F.ceil),
    ("", "Celu"): Row(_celu, is_free=True),
    ("", "Clip"): Row(_clip, is_free=True),
    ("", "Cos"): unary(F.cos),
    ("", "Cosh"): unary(F.cosh),
    ("", "Div"): Row(_div, _fold_div, is_free=True),
    ("", "Dropout"): Row(_dropout, is_free=True),
    ("", "Einsum"): Row(_einsum),
    ("", "Elu"): unary(F.elu, alpha=1.0),
    ("", "Equal"): binary(F.equal, np.equal, np.bool_),
    ("", "Erf"): unary(F.erf),
    ("", "Exp"): unary(F.exp),
    ("", "Floor"): unary(F.floor),
    ("", "Gelu"): Row(_gelu, is_free=True),
    ("", "Gemm"): Row(gemm, is_free=True),
    ("", "Greater"): binary(F.greater, np.greater, np.bool_),
    ("", "GreaterOrEqual"): binary(F.greater_equal, np.greater_equal, np.bool_),
    ("", "Hardmax"): Row(_hardmax),
    ("", "HardSigmoid"): Row(_hard_sigmoid, is_free=True),
    ("", "HardSwish"): Row(lambda node: F.hard_swish(node.x()), is_free=True),
    ("", "Identity"): Row(_identity, lambda node: node.value(0), is_free=True),
    ("", "IsInf"): Row(_is_inf, dtype=np.bool_, is_free=True),
    ("", "IsNaN"): unary(F.isnan, np.bool_),
    ("", "LeakyRelu"): unary(F.leaky_relu, alpha=0.01),
    ("", "Less"): binary(F.less, np.less, np.bool_),
    ("", "LessOrEqual"): binary(F.less_equal, np.less_equal, np.bool_),
    ("", "Log"): unary(F.log),
    ("", "LogSoftmax"): _softmax(F.log_softmax),
    ("", "MatMul"): Row(_matmul, is_free=True),
    ("", "Max"): many(F.maximum2, np.maximum),
    ("", "Mean"): Row(_mean, is_free=True),
    ("", "Min"): many(F.minimum2, np.minimum),
    ("", "Mish"): unary(F.mish),
    ("", "Mod"): Row(_mod, lambda node: (np.fmod if node.get("fmod", 0) else np.mod)(node.static(0), node.static(1))),
    ("", "Mul"): binary(F.mul2, np.multiply),
    ("", "Neg"): Row(lambda node: -node.x(), folded(np.negative), is_free=True),
    ("", "Not"): unary(F.logical_not, np.bool_),
    ("", "Or"): binary(F.logical_or, np.logical_or, np.bool_),
    ("", "PRelu"): Row(_prelu, is_free=True),
    ("", "Pow"): Row(_pow, is_free=True),
    ("", "Reciprocal"): Row(lambda node: F.r_div_scalar(node.x(), 1.0), is_free=True),
    ("", "Relu"): unary(F.relu),
    ("", "Round"): unary(rounded),
    ("", "Selu"): Row(
        lambda node: F.selu(
            node.x(),
            scale=node.get("gamma", 1.05070102214813232421875),
            alpha=node.get("alpha", 1.67326319217681884765625),
        )
    ),
    ("", "Shrink"): Row(_shrink),
    ("", "Sigmoid"): unary(F.sigmoid),
    ("", "Sign"): Row(lambda node: F.sign(node.x(), alpha=0.0), is_free=True),
    ("", "Sin"): unary(F.sin),
    ("", "Sinh"): unary(F.sinh),
    ("", "Softmax"): _softmax(F.softmax),
    ("", "Softplus"): unary(F.softplus),
    ("", "Softsign"): unary(F.softsign),
    ("", "Sqrt"): Row(_sqrt, is_free=True),
    ("", "Sub"): binary(F.sub2, np.subtract),
    ("", "Sum"): many(F.add2, np.add),
    ("", "Swish"): Row(lambda node: node.x() * F.sigmoid(node.x() * node.get("alpha", 1.0)), is_free=True),
    ("", "Tan"): unary(F.tan),
    ("", "Tanh"): unary(F.tanh),
    ("", "ThresholdedRelu"): Row(_thresholded),
    ("", "Where"): Row(_where, lambda node: np.where(node.static(0), node.static(1), node.static(2))),
    ("", "Xor"): binary(F.logical_xor, np.logical_xor, np.bool_),
    ("com.microsoft", "BiasGelu"): Row(_biased, is_free=True),
    ("com.microsoft", "FastGelu"): Row(_fast_gelu, is_free=True),
    ("com.microsoft", "Gelu"): Row(_biased, is_free=True),
    ("com.microsoft", "QuickGelu"): Row(
        lambda node: node.x() * F.sigmoid(node.x() * node.get("alpha", 1.702)), is_free=True
    ),
}
"""One row for each operator."""
