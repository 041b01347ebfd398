"""Prints, as JSON, the elementary functions with wrong results at inputs whose exact result is known.

A program that runs once for each instruction set. Some true values are numbers or multiples of an eighth of a
turn. There the result must be the nearest float with the right sign. Elsewhere one of the two neighbours is
accepted too.
"""

from __future__ import annotations

import json

import numpy as np
from scipy import special

import kinnor as nn
import kinnor.functions as F

AT = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e10, -1e10, 3e38, -3e38, np.inf, -np.inf, np.nan])
"""Numbers at which functions must have the nearest result, or a special value."""

FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "sigmoid": special.expit,
    "relu": lambda x: np.where(x < 0, 0.0, x),
    "sign": lambda x: np.where(x == 0, 1.0, np.sign(x)),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
    "swish": lambda x: np.maximum(x, -1e300) * special.expit(x),
}
"""The NumPy reference of each function."""


def is_exact(x: float, y: float) -> bool:
    """True if the result must be the nearest float."""
    eighths = 4 * y / np.pi
    return x == 0 or not np.isfinite(y) or float(np.float16(y)) == y or abs(eighths - np.round(eighths)) < 1e-15


def main() -> None:
    """Prints the wrong results of all functions in float32 and float64."""
    wrong = []
    for dtype, context in ((np.float32, "float"), (np.float64, "double")):
        x = AT.astype(dtype)
        for name, reference in FUNCTIONS.items():
            with nn.context_scope(nn.Context([f"cpu:{context}"])), np.errstate(all="ignore"):
                y = getattr(F, name)(nn.Variable.from_numpy_array(x))
                y.forward()
                exact = reference(x.astype(np.float64))
                nearest = exact.astype(dtype)
                for at, got, value, true in zip(x, y.d, nearest, exact, strict=True):
                    same = got == value and np.signbit(got) == np.signbit(value)
                    same |= np.isnan(got) and np.isnan(value)
                    near = not is_exact(at, true) and np.abs(got - value) <= np.spacing(np.abs(value))
                    if not (same or near):
                        wrong.append([name, dtype.__name__, *map(float, (at, got, value))])
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
