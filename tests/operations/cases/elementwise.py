"""Rows of elementwise operations: activations, mathematics, rounding."""

from __future__ import annotations

import numpy as np
from scipy import special

from . import SHAPES, Row, sample, unary

NAMED = {
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "swish": lambda x: x * special.expit(x),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh_shrink": lambda x: x - np.tanh(x),
    "sinc": lambda x: np.sinc(x / np.pi),
    "identity": lambda x: x,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "erf": special.erf,
}
"""The NumPy reference of functions without arguments that are smooth away from 0."""


def straight(gy, x):
    """Returns the straight-through gradient of an operation that rounds: `gy` itself."""
    return (gy,)


def nothing(gy, x):
    """Returns zeros: the gradient of an operation that blocks gradients."""
    return (np.zeros_like(x),)


def special_values(*shape):
    """Returns numbers that include NaN and infinities."""
    x = sample(*shape).ravel()
    x[::5], x[1::5], x[2::5] = np.nan, np.inf, -np.inf
    return x.reshape(shape)


def holes(bad):
    """Returns the gradient of an operation that replaces the elements `bad(x)`: zero there, else `gy`."""
    return lambda gy, x: (np.where(bad(x), 0.0, gy),)


def crelu(x, axis=1):
    """NumPy reference of `crelu`."""
    return np.concatenate((np.maximum(x, 0), np.maximum(-x, 0)), axis)


def celu(x, axis=1, alpha=1.0):
    """NumPy reference of `celu`."""
    return np.concatenate([np.where(s >= 0, s, alpha * np.expm1(s)) for s in (x, -x)], axis)


ROWS: list[Row] = [
    *(row for name, f in NAMED.items() for row in unary(name, f, away=(0.0,))),
    *unary("softplus", lambda x: np.logaddexp(0, x)),
    *unary("softplus", lambda x, beta: np.logaddexp(0, beta * x) / beta, args={"beta": 2.5}),
    *unary("relu", lambda x: np.maximum(x, 0), away=(0.0,)),
    *unary("relu", lambda x, inplace: np.maximum(x, 0), [(2, 3)], away=(0.0,), args={"inplace": True}),
    *unary("leaky_relu", lambda x: np.where(x > 0, x, 0.1 * x), away=(0.0,)),
    *unary("leaky_relu", lambda x, alpha: np.where(x > 0, x, alpha * x), away=(0.0,), args={"alpha": 0.3}),
    *unary("elu", lambda x: np.where(x >= 0, x, np.expm1(x)), away=(0.0,)),
    *unary("elu", lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)), away=(0.0,), args={"alpha": 0.7}),
    *unary(
        "selu",
        lambda x: 1.05070098735548 * np.where(x > 0, x, 1.673263242354377 * np.expm1(x)),
        away=(0.0,),
    ),
    *unary(
        "selu",
        lambda x, scale, alpha: scale * np.where(x > 0, x, alpha * np.expm1(x)),
        away=(0.0,),
        args={"scale": 2.0, "alpha": 0.5},
    ),
    *unary("relu6", lambda x: np.clip(x, 0, 6), low=-3, high=9, away=(0.0, 6.0)),
    *unary("hard_sigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), low=-4, high=4, away=(-2.5, 2.5)),
    *unary("hard_tanh", lambda x: np.clip(x, -1, 1), away=(-1.0, 1.0)),
    *unary(
        "hard_swish", lambda x: np.where(x <= -3, 0, x * np.clip(x + 3, 0, 6) / 6), low=-5, high=5, away=(-3.0, 3.0)
    ),
    *unary("abs", np.abs, away=(0.0,)),
    *unary("sign", np.sign, away=(0.0,), gradient=straight),
    Row(
        "sign",
        (np.array([0.0, -1.0, 2.0]),),
        lambda x, alpha: np.array([alpha, -1.0, 1.0]),
        {"alpha": 0.5},
        gradient=straight,
    ),
    *unary("log", np.log, low=0.3, high=3.0),
    *unary("tan", np.tan, low=-1.2, high=1.2, tolerance=5e-6),
    *unary("asin", np.arcsin, low=-0.9, high=0.9),
    *unary("acos", np.arccos, low=-0.9, high=0.9),
    *unary("acosh", np.arccosh, low=1.3, high=4.0),
    *unary("atanh", np.arctanh, low=-0.8, high=0.8),
    *unary("floor", np.floor, away=(-1.0, 0.0, 1.0), gradient=straight),
    *unary("ceil", np.ceil, away=(-1.0, 0.0, 1.0), gradient=straight),
    *unary("round", np.round, away=(-1.5, -0.5, 0.5, 1.5), gradient=straight),
    Row(
        "round",
        (np.array([-2.5, -0.5, 0.5, 1.5, 2.5]),),
        lambda x: np.trunc(x + np.copysign(0.5, x)),
        gradient=straight,
    ),
    *unary("unlink", lambda x: x, gradient=nothing, shares=True),
    *unary("add_scalar", lambda x: x + 1.0),
    *unary("add_scalar", lambda x, val: x + val, args={"val": -0.7}),
    *unary("mul_scalar", lambda x: x),
    *unary("mul_scalar", lambda x, val: x * val, args={"val": 2.5}),
    *unary("pow_scalar", lambda x: x),
    *unary("pow_scalar", lambda x, val: x**val, args={"val": 2.0}),
    *unary("pow_scalar", lambda x, val: x**val, args={"val": -1.5}, low=0.5, high=3.0, tolerance=5e-6),
    # The square root of minus infinity is NaN, but C's `pow(-inf, 0.5)` is infinite.
    *unary(
        "pow_scalar",
        lambda x, val: np.where(x == -np.inf, np.inf, x**val),
        [(2, 3)],
        args={"val": 0.5},
        low=0.5,
        high=3.0,
    ),
    *unary("pow_scalar", lambda x, val: x**val, [(2, 3)], args={"val": 3.0}, tolerance=5e-6),
    *unary("r_sub_scalar", lambda x: 1.0 - x),
    *unary("r_sub_scalar", lambda x, val: val - x, args={"val": 0.3}),
    *unary("r_div_scalar", lambda x: 1.0 / x, low=0.5, high=3.0),
    *unary("r_div_scalar", lambda x, val: val / x, args={"val": -2.0}, low=0.5, high=3.0, tolerance=5e-6),
    *unary("r_pow_scalar", lambda x: np.ones_like(x)),
    *unary("r_pow_scalar", lambda x, val: val**x, args={"val": 2.5}, tolerance=5e-6),
    *unary("maximum_scalar", lambda x: np.maximum(x, 1.0), away=(1.0,)),
    *unary("maximum_scalar", lambda x, val: np.maximum(x, val), args={"val": -0.5}, away=(-0.5,)),
    *unary("minimum_scalar", lambda x: np.minimum(x, 1.0), away=(1.0,)),
    *unary("minimum_scalar", lambda x, val: np.minimum(x, val), args={"val": 0.5}, away=(0.5,)),
    *unary("clip_by_value", lambda x, min, max: np.clip(x, min, max), args={"min": -1.0, "max": 0.5}, away=(-1.0, 0.5)),
    Row("isnan", (special_values(3, 4),), np.isnan, gradient=nothing),
    Row("isinf", (special_values(3, 4),), np.isinf, gradient=nothing),
    Row("reset_nan", (special_values(3, 4),), lambda x: np.where(np.isnan(x), 0.0, x), gradient=holes(np.isnan)),
    Row("reset_inf", (special_values(3, 4),), lambda x: np.where(np.isinf(x), 0.0, x), gradient=holes(np.isinf)),
    *unary("isnan", np.isnan, gradient=nothing),
    *unary("isinf", np.isinf, gradient=nothing),
    *unary("reset_nan", lambda x, val: np.where(np.isnan(x), val, x), args={"val": 3.0}),
    *unary("reset_inf", lambda x, val: np.where(np.isinf(x), val, x), args={"val": 3.0}),
    *(
        row
        for shape in SHAPES
        for row in (
            Row("crelu", (sample(*shape, away=(0.0,)),), crelu, {"axis": -1}),
            Row("celu", (sample(*shape, away=(0.0,)),), celu, {"axis": 0, "alpha": 0.7}),
        )
        if shape
    ),
    Row("crelu", (sample(2, 3, 2, away=(0.0,)),), crelu),
    Row("celu", (sample(2, 3, 2, away=(0.0,)),), celu),
    Row("prelu", (sample(2, 3, 2, away=(0.0,)), sample(3, seed=1)), lambda x, a: np.where(x > 0, x, a[:, None] * x)),
    Row("prelu", (sample(2, 3, away=(0.0,)), sample(seed=1)), lambda x, a: np.where(x > 0, x, a * x)),
    Row(
        "prelu",
        (sample(2, 3, 4, away=(0.0,)), sample(4, seed=1)),
        lambda x, a, base_axis: np.where(x > 0, x, a * x),
        {"base_axis": -1},
    ),
    Row("prelu", (sample(0, 3), sample(3, seed=1)), lambda x, a: x),
]
