"""Dynamic quantization: scale and zero point computed from the array, and detection of this computation in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import functions as F
from ..patterns import is_a

if TYPE_CHECKING:
    from ..._core import Variable

__all__ = ["dynamic_parameters", "is_dynamic", "rounded"]


def rounded(x: Variable) -> Variable:
    """Elements rounded to the nearest integer, half to even.

    Args:
        x: Input of any shape.
    """
    whole = F.floor(x)
    rest = x - whole
    odd = whole - F.floor(whole * 0.5) * 2.0
    up = F.logical_or(F.greater_scalar(rest, 0.5), F.logical_and(F.equal_scalar(rest, 0.5), odd))
    return whole + up


def dynamic_parameters(x: Variable) -> tuple[Variable, Variable]:
    """Scale and zero point of 8-bit levels whose range covers all elements and zero.

    Args:
        x: The array.
    """
    axes = list(range(x.ndim))
    most = F.maximum_scalar(F.max(x, axis=axes), 0.0)
    least = F.minimum_scalar(F.min(x, axis=axes), 0.0)
    scale = (most - least) / 255.0
    scale = scale + F.equal_scalar(scale, 0.0)
    return scale, rounded(F.minimum_scalar(F.maximum_scalar(-least / scale, 0.0), 255.0))


def is_dynamic(x: Variable, scale: Variable, zero: Variable) -> bool:
    """True if the graph computes scale and zero point by `dynamic_parameters` of `x`.

    Args:
        x: The array.
        scale: The scale.
        zero: The zero point.
    """
    if not is_a(scale.parent, "Add2") or zero.parent is None:
        return False
    return all(_is_same(a, b, x) for a, b in zip((scale, zero), dynamic_parameters(x), strict=True))


def _is_same(a: Variable, b: Variable, source: Variable) -> bool:
    """True if two variables are the same function of `source`."""
    if a == b or source in (a, b):
        return a == b
    f, g = a.parent, b.parent
    if f is None or g is None or f.info.type_name != g.info.type_name or f.info.args != g.info.args:
        return False
    return len(f.inputs) == len(g.inputs) and all(
        _is_same(*pair, source) for pair in zip(f.inputs, g.inputs, strict=True)
    )
