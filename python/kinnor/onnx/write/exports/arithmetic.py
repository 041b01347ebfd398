"""Elementwise functions, matrix products, and losses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..writer import Call, Tensor

__all__ = ["ARITHMETIC"]


def _unary(kind: str, **attributes: str) -> Any:
    """A row for an operator of one input. `attributes` maps ONNX attributes to arguments of the function."""
    return lambda c: c.graph.op(kind, c.x(), **{key: float(c.args[name]) for key, name in attributes.items()})


def _binary(kind: str) -> Any:
    """A row for an operator of two inputs."""
    return lambda c: c.graph.op(kind, c.x(0), c.x(1))


def _many(kind: str) -> Any:
    """A row for an operator of two inputs, applied to any number of inputs from left to right."""

    def row(c: Call) -> Tensor:
        """Writes the operator once for each input after the first."""
        y = c.x(0)
        for i in range(1, len(c.inputs)):
            y = c.graph.op(kind, y, c.x(i))
        return y

    return row


def _with(kind: str, reverse: bool = False, key: str = "val") -> Any:
    """A row for an operator of an input and the scalar argument `key`. With `reverse` the scalar comes first."""

    def row(c: Call) -> Tensor:
        """Writes the operator with the argument as a constant."""
        pair = (c.x(), c.graph.number(c.args[key]))
        return c.graph.op(kind, *(pair[::-1] if reverse else pair))

    return row


def _compared(kind: str, scalar: bool) -> Any:
    """A row for a comparison of two inputs, or of an input and a scalar argument."""

    def row(c: Call) -> Tensor:
        """Writes the comparison, and a cast of its result to floats."""
        g, a = c.graph, c.x(0)
        b = g.number(c.args["val"]) if scalar else c.x(1)
        if kind == "Equal":
            return g.as_float(g.equal(a, b))
        if kind == "NotEqual":
            return g.as_float(g.op("Not", g.equal(a, b)))
        if kind.endswith("OrEqual") and g.opset < 12:
            either = g.op("Or", g.op(kind.removesuffix("OrEqual"), a, b, dtype=np.bool_), g.equal(a, b))
            return g.as_float(either)
        return g.as_float(g.op(kind, a, b, dtype=np.bool_))

    return row


def _logical(kind: str, scalar: bool) -> Any:
    """A row for a logical operator of two inputs, or of an input and a scalar argument."""

    def row(c: Call) -> Tensor:
        """Writes casts of the inputs to booleans, the operator, and a cast of its result to floats."""
        b = c.graph.constant(bool(c.args["val"])) if scalar else c.truth(1)
        return c.graph.as_float(c.graph.op(kind, c.truth(0), b))

    return row


def _gelu(c: Call) -> Tensor:
    """Writes `GELU` as ONNX nodes."""
    g, x = c.graph, c.x()
    if g.opset >= 20:
        return g.op("Gelu", x, approximate="tanh")
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.number(0.044715))), g.number(math.sqrt(2 / math.pi)))
    return g.op("Mul", g.op("Mul", x, g.number(0.5)), g.op("Add", g.op("Tanh", inner), g.number(1)))


def _softplus(g: Any, x: Tensor) -> Tensor:
    """log(1 + exp(x)) without overflow."""
    small = g.op("Log", g.op("Add", g.op("Exp", g.op("Neg", g.op("Abs", x))), g.number(1)))
    return g.op("Add", g.op("Relu", x), small)  # type: ignore[no-any-return]


def _hard_swish(c: Call) -> Tensor:
    """Writes `HardSwish` as ONNX nodes."""
    if c.graph.opset >= 14:
        return c.graph.op("HardSwish", c.x())
    return c.graph.op("Mul", c.x(), c.graph.op("HardSigmoid", c.x(), alpha=1 / 6, beta=0.5))


def _mish(c: Call) -> Tensor:
    """Writes `Mish` as ONNX nodes."""
    return c.graph.op("Mul", c.x(), c.graph.op("Tanh", _softplus(c.graph, c.x())))


def _soft_plus(c: Call) -> Tensor:
    """Writes `SoftPlus` as ONNX nodes."""
    g, beta = c.graph, float(c.args["beta"])
    if beta == 1.0:
        return _softplus(g, c.x())
    return g.op("Mul", _softplus(g, g.op("Mul", c.x(), g.number(beta))), g.number(1 / beta))


def _concatenated(kind: str) -> Any:
    """A row that concatenates an activation of the input and of its negative."""

    def row(c: Call) -> Tensor:
        """Writes the activation of the input and of its negative, and their concatenation."""
        g, attributes = c.graph, {"alpha": float(c.args["alpha"])} if kind == "Elu" else {}
        pair = [g.op(kind, x, **attributes) for x in (c.x(), g.op("Neg", c.x()))]
        return g.op("Concat", *pair, axis=c.axis())

    return row


def _prelu(c: Call) -> Tensor:
    """Writes `PReLU` as ONNX nodes."""
    slope, g = c.x(1), c.graph
    if len(c.shapes[1]) == 1:
        axis = int(c.args["base_axis"]) % c.ndim
        slope = g.reshape(slope, [c.shapes[1][0], *[1] * (c.ndim - 1 - axis)])
    return g.op("PRelu", c.x(), slope)


def _clipped(low: float, high: float) -> Any:
    """A row that clips the input to constant bounds."""
    return lambda c: _between(c, c.x(), low, high)


def _between(c: Call, x: Tensor, low: float, high: float) -> Tensor:
    """A tensor clipped to constant bounds."""
    g = c.graph
    if g.opset >= 11:
        return g.op("Clip", x, g.number(low), g.number(high))
    return g.op("Clip", x, min=low, max=high)


def _sign(c: Call) -> Tensor:
    """Writes `Sign` as ONNX nodes."""
    g, y = c.graph, c.graph.op("Sign", c.x())
    alpha = float(c.args["alpha"])
    if not alpha:
        return y
    return g.op("Where", g.equal(c.x(), g.number(0)), g.number(alpha), y)


def _round(c: Call) -> Tensor:
    """Writes `Round` as ONNX nodes."""
    g, x = c.graph, c.x()
    return g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Add", g.op("Abs", x), g.number(0.5))))


def _sinc(c: Call) -> Tensor:
    """Writes `Sinc` as ONNX nodes."""
    g, x = c.graph, c.x()
    at_zero = g.equal(x, g.number(0))
    safe = g.op("Where", at_zero, g.number(1), x)
    return g.op("Where", at_zero, g.number(1), g.op("Div", g.op("Sin", safe), safe))


def _atan2(c: Call) -> Tensor:
    """Writes `ATan2` as ONNX nodes."""
    g, y, x = c.graph, c.x(0), c.x(1)
    zero = g.number(0)
    on_axis = g.equal(x, zero)
    angle = g.op("Atan", g.op("Div", y, g.op("Where", on_axis, g.number(1), x)))
    turn = g.op("Where", g.op("Less", y, zero, dtype=np.bool_), g.number(-math.pi), g.number(math.pi))
    angle = g.op("Where", g.op("Less", x, zero, dtype=np.bool_), g.op("Add", angle, turn), angle)
    return g.op("Where", on_axis, g.op("Mul", g.op("Sign", y), g.number(math.pi / 2)), angle)


def _is_inf(c: Call) -> Tensor:
    """True where the input is infinite."""
    g = c.graph
    return g.op("Greater", g.op("Abs", c.x()), g.number(float(np.finfo(np.float32).max)), dtype=np.bool_)


def _reset(is_it: Callable[[Call], Tensor]) -> Any:
    """A row that replaces elements for which `is_it` is true by the argument `val`."""
    return lambda c: c.graph.op("Where", is_it(c), c.graph.number(c.args["val"]), c.x())


def _is_nan(c: Call) -> Tensor:
    """True where the input is NaN."""
    return c.graph.op("IsNaN", c.x(), dtype=np.bool_)


def _signed(below: float) -> Any:
    """A row for 1 where the input is positive, and `below` elsewhere."""

    def row(c: Call) -> Tensor:
        """Writes the comparison with zero and a selection."""
        above = c.graph.op("Greater", c.x(), c.graph.number(0), dtype=np.bool_)
        return c.graph.op("Where", above, c.graph.number(1), c.graph.number(below))

    return row


def _mod(c: Call) -> Tensor:
    """Writes `Mod2` as ONNX nodes."""
    g, a, b = c.graph, c.x(0), c.x(1)
    quotient = g.op("Div", a, b)
    if c.args["fmod"]:
        quotient = g.op("Mul", g.op("Sign", quotient), g.op("Floor", g.op("Abs", quotient)))
    else:
        quotient = g.op("Floor", quotient)
    return g.op("Sub", a, g.op("Mul", b, quotient))


def _fixed_point(c: Call) -> Tensor:
    """Writes `FixedPointQuantize` as ONNX nodes."""
    g, delta, n = c.graph, float(c.args["delta"]), int(c.args["n"])
    most = (2 ** (n - 1) - 1 if c.args["sign"] else 2**n - 1) * delta
    x = _between(c, c.x(), -most if c.args["sign"] else 0.0, most)
    size = g.op("Floor", g.op("Add", g.op("Div", g.op("Abs", x), g.number(delta)), g.number(0.5)))
    return g.op("Mul", g.op("Mul", g.op("Sign", x), size), g.number(delta))


# --- Products


def _affine(c: Call) -> Tensor:
    """Writes `Affine` as ONNX nodes."""
    g, (x, w), bias = c.graph, (c.x(0), c.x(1)), c.optional(2)
    base, wide = int(c.args["base_axis"]) % c.ndim, c.shapes[1]
    n_in, n_out = wide[0], math.prod(wide[1:])
    w = w if len(wide) == 2 else g.reshape(w, [n_in, n_out])
    if bias is not None and len(c.shapes[2]) != 1:
        bias = g.reshape(bias, [n_out])
    if base == c.ndim - 1 and c.ndim > 2:
        y = g.op("MatMul", x, w)
        y = y if bias is None else g.op("Add", y, bias)
        return y if len(wide) == 2 else g.reshape(y, c.outputs[0])
    flat = x if (base, c.ndim) == (1, 2) else g.op("Flatten", x, axis=base)
    y = g.op("MatMul", flat, w) if bias is None else g.op("Gemm", flat, w, bias)
    return y if len(c.outputs[0]) == 2 and base == 1 else g.reshape(y, c.outputs[0])


def _batch_matmul(c: Call) -> Tensor:
    """Writes `BatchMatmul` as ONNX nodes."""
    pair = []
    for i, key in ((0, "transpose_a"), (1, "transpose_b")):
        n = len(c.shapes[i])
        order = [*range(n - 2), n - 1, n - 2] if c.args[key] else range(n)
        pair.append(c.graph.transpose(c.x(i), order))
    return c.graph.op("MatMul", *pair)


def _attention(c: Call) -> Tensor:
    """Writes `ScaledDotProductAttention` as ONNX nodes."""
    g, ndim = c.graph, c.ndim
    scale = c.args["scale"]
    scale = c.shape[-1] ** -0.5 if scale is None else scale
    keys = g.transpose(c.x(1), [*range(ndim - 2), ndim - 1, ndim - 2])
    scores = g.op("MatMul", g.op("Mul", c.x(0), g.number(scale)), keys)
    mask = c.optional(3)
    scores = scores if mask is None else g.op("Add", scores, mask)
    if c.args["causal"]:
        n_queries, n_keys = c.fixed(ndim - 2), int(c.shapes[1][-2])
        hidden = np.where(np.tri(n_queries, n_keys, dtype=bool), 0.0, -np.inf)
        scores = g.op("Add", scores, g.constant(hidden, np.float32))
    return g.op("MatMul", g.softmax("Softmax", scores, ndim - 1, ndim), c.x(2))


def _einsum(c: Call) -> Tensor:
    """Writes `Einsum` as ONNX nodes."""
    c.needs(12)
    return c.graph.op("Einsum", *(c.x(i) for i in range(len(c.inputs))), equation=c.args["equation"])


# --- Losses


def _squared(c: Call) -> Tensor:
    """Writes `SquaredError` as ONNX nodes."""
    rest = c.graph.op("Sub", c.x(0), c.x(1))
    return c.graph.op("Mul", rest, rest)


def _absolute(c: Call) -> Tensor:
    """Writes `AbsoluteError` as ONNX nodes."""
    return c.graph.op("Abs", c.graph.op("Sub", c.x(0), c.x(1)))


def _huber(c: Call) -> Tensor:
    """Writes `HuberLoss` as ONNX nodes."""
    g, rest, delta = c.graph, _absolute(c), float(c.args["delta"])
    far = g.op("Mul", g.op("Sub", g.op("Add", rest, rest), g.number(delta)), g.number(delta))
    near = g.op("Less", rest, g.number(delta), dtype=np.bool_)
    return g.op("Where", near, g.op("Mul", rest, rest), far)


def _insensitive(c: Call) -> Tensor:
    """Writes `EpsilonInsensitiveLoss` as ONNX nodes."""
    return c.graph.op("Relu", c.graph.op("Sub", _absolute(c), c.graph.number(c.args["epsilon"])))


def _sigmoid_cross_entropy(c: Call) -> Tensor:
    """Writes `SigmoidCrossEntropy` as ONNX nodes."""
    return c.graph.op("Sub", _softplus(c.graph, c.x(0)), c.graph.op("Mul", c.x(0), c.x(1)))


def _binary_cross_entropy(c: Call) -> Tensor:
    """Writes `BinaryCrossEntropy` as ONNX nodes."""
    g, x, t = c.graph, c.x(0), c.x(1)
    least = g.number(float(np.finfo(np.float32).tiny))
    yes = g.op("Mul", t, g.op("Log", g.op("Max", x, least)))
    no = g.op("Mul", g.op("Sub", g.number(1), t), g.op("Log", g.op("Max", g.op("Sub", g.number(1), x), least)))
    return g.op("Neg", g.op("Add", yes, no))


def _binary_error(c: Call) -> Tensor:
    """Writes `BinaryError` as ONNX nodes."""
    g, half = c.graph, c.graph.number(0.5)
    sides = [g.op("Less", c.x(i), half, dtype=np.bool_) for i in (0, 1)]
    return g.as_float(g.op("Xor", *sides))


def _chosen(c: Call, x: Tensor) -> Tensor:
    """The negated elements at the labels, the second input, along `axis`; 0 for labels out of range."""
    g, axis = c.graph, c.axis()
    depth, places = g.constant(c.fixed(axis), np.int64), c.places(1)
    # A negative label selects nothing, but in ONNX it would count from the end.
    places = g.op("Where", g.op("Less", places, g.constant(0, np.int64), dtype=np.bool_), depth, places)
    places = places if c.ndim == 1 else g.squeeze(places, [axis])
    ones = g.op("OneHot", places, depth, g.constant([0, 1], np.float32), axis=axis, dtype=np.float32)
    ones = g.squeeze(ones, [1]) if c.ndim == 1 else ones
    zero = g.number(0)
    kept = g.op("Where", g.cast(ones, np.bool_), x, zero)  # selects, as -inf * 0 would be NaN
    return g.op("Neg", g.reduce("ReduceSum", kept, [axis]))


def _softmax_cross_entropy(c: Call) -> Tensor:
    """Writes `SoftmaxCrossEntropy` as ONNX nodes."""
    return _chosen(c, c.graph.softmax("LogSoftmax", c.x(), c.axis(), c.ndim))


def _categorical_cross_entropy(c: Call) -> Tensor:
    """Writes `CategoricalCrossEntropy` as ONNX nodes."""
    least = c.graph.number(float(np.finfo(np.float32).tiny))
    return _chosen(c, c.graph.op("Log", c.graph.op("Max", c.x(), least)))


def _kl(c: Call) -> Tensor:
    """Writes `KLMultinomial` as ONNX nodes."""
    g, e = c.graph, c.graph.number(1e-8)
    p, q = c.x(0), c.x(1)
    ratio = g.op("Sub", g.op("Log", g.op("Add", p, e)), g.op("Log", g.op("Add", q, e)))
    axes = range(int(c.args["base_axis"]) % c.ndim, c.ndim)
    total = g.reduce("ReduceSum", g.op("Mul", p, ratio), list(axes), keepdims=False)
    return g.reshape(total, c.outputs[0])


def _softmax(kind: str) -> Any:
    """A row for softmax or log-softmax."""
    return lambda c: c.graph.softmax(kind, c.x(), c.axis(), c.ndim)


_COMPARED = {
    "Equal": "Equal",
    "NotEqual": "NotEqual",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
}
"""The ONNX operator of each comparison."""
_LOGICAL = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}
"""The ONNX operator of each logical function."""

ARITHMETIC: dict[str, Any] = {
    "Abs": _unary("Abs"),
    "AbsoluteError": _absolute,
    "ACos": _unary("Acos"),
    "ACosh": _unary("Acosh"),
    "Add2": _binary("Add"),
    "AddN": _many("Add"),
    "AddScalar": _with("Add"),
    "Affine": _affine,
    "ASin": _unary("Asin"),
    "ASinh": _unary("Asinh"),
    "ATan": _unary("Atan"),
    "ATan2": _atan2,
    "ATanh": _unary("Atanh"),
    "BatchMatmul": _batch_matmul,
    "BcAdd2": _binary("Add"),
    "BinaryCrossEntropy": _binary_cross_entropy,
    "BinaryError": _binary_error,
    "BinarySigmoid": _signed(0.0),
    "BinaryTanh": _signed(-1.0),
    "CategoricalCrossEntropy": _categorical_cross_entropy,
    "Ceil": _unary("Ceil"),
    "CELU": _concatenated("Elu"),
    "Cos": _unary("Cos"),
    "Cosh": _unary("Cosh"),
    "CReLU": _concatenated("Relu"),
    "Div2": _binary("Div"),
    "Dropout": lambda c: c.inputs[0],
    "Einsum": _einsum,
    "ELU": _unary("Elu", alpha="alpha"),
    "EpsilonInsensitiveLoss": _insensitive,
    "Erf": _unary("Erf"),
    "Exp": _unary("Exp"),
    "FixedPointQuantize": _fixed_point,
    "Floor": _unary("Floor"),
    "GELU": _gelu,
    "HardSigmoid": lambda c: c.graph.op("HardSigmoid", c.x(), alpha=0.2, beta=0.5),
    "HardSwish": _hard_swish,
    "HardTanh": _clipped(-1.0, 1.0),
    "HuberLoss": _huber,
    "Identity": lambda c: c.inputs[0],
    "IsInf": lambda c: c.graph.as_float(_is_inf(c)),
    "IsNaN": lambda c: c.graph.as_float(_is_nan(c)),
    "KLMultinomial": _kl,
    "LeakyReLU": _unary("LeakyRelu", alpha="alpha"),
    "Log": _unary("Log"),
    "LogicalNot": lambda c: c.graph.as_float(c.graph.op("Not", c.truth())),
    "LogSigmoid": lambda c: c.graph.op("Neg", _softplus(c.graph, c.graph.op("Neg", c.x()))),
    "LogSoftmax": _softmax("LogSoftmax"),
    "Maximum2": _binary("Max"),
    "MaximumScalar": _with("Max"),
    "Minimum2": _binary("Min"),
    "MinimumScalar": _with("Min"),
    "Mish": _mish,
    "Mod2": _mod,
    "Mul2": _binary("Mul"),
    "MulN": _many("Mul"),
    "MulScalar": _with("Mul"),
    "Pow2": _binary("Pow"),
    "PowScalar": _with("Pow"),
    "PReLU": _prelu,
    "RDivScalar": _with("Div", reverse=True),
    "ReLU": _unary("Relu"),
    "ReLU6": _clipped(0.0, 6.0),
    "ResetInf": _reset(_is_inf),
    "ResetNaN": _reset(_is_nan),
    "Round": _round,
    "RPowScalar": _with("Pow", reverse=True),
    "RSubScalar": _with("Sub", reverse=True),
    "ScaledDotProductAttention": _attention,
    "SELU": _unary("Selu", alpha="alpha", gamma="scale"),
    "Sigmoid": _unary("Sigmoid"),
    "SigmoidCrossEntropy": _sigmoid_cross_entropy,
    "Sign": _sign,
    "Sin": _unary("Sin"),
    "Sinc": _sinc,
    "Sinh": _unary("Sinh"),
    "Softmax": _softmax("Softmax"),
    "SoftmaxCrossEntropy": _softmax_cross_entropy,
    "SoftPlus": _soft_plus,
    "SoftSign": _unary("Softsign"),
    "SquaredError": _squared,
    "Sub2": _binary("Sub"),
    "Swish": lambda c: c.graph.op("Mul", c.x(), c.graph.op("Sigmoid", c.x())),
    "Tan": _unary("Tan"),
    "Tanh": _unary("Tanh"),
    "TanhShrink": lambda c: c.graph.op("Sub", c.x(), c.graph.op("Tanh", c.x())),
    "Unlink": lambda c: c.inputs[0],
    **{kind: _compared(name, scalar=False) for kind, name in _COMPARED.items()},
    **{f"{kind}Scalar": _compared(name, scalar=True) for kind, name in _COMPARED.items()},
    **{kind: _logical(name, scalar=False) for kind, name in _LOGICAL.items()},
    **{f"{kind}Scalar": _logical(name, scalar=True) for kind, name in _LOGICAL.items()},
}
"""One row for each type of function."""
