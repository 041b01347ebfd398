"""Refusals of plain arguments, in one voice."""

from collections.abc import Iterable
from itertools import islice
from operator import index
from typing import Any

import numpy as np

from ._core import CallError, Error, RangeError


def flag(op: str, name: str, value: Any) -> bool:
    """Refuse what is not True or False, those of NumPy, 1 or 0."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise CallError(f"{op}: expected `{name}` to be True or False, got {value!r}")


def number(op: str, name: str, value: Any) -> Any:
    """Refuse what is no real number; an array of one, without axes, is one. Returned as it is."""
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf":
        return value
    raise CallError(f"{op}: expected `{name}` to be a number, got {value!r}")


def whole(op: str, name: str, value: Any) -> int:
    """Refuse what is no whole number. A float that is one, as `16 / 2`, stands for the integer."""
    found = as_whole(value)
    if found is None:
        raise CallError(f"{op}: expected `{name}` to be a whole number, got {value!r}")
    return found


def as_whole(value: Any) -> int | None:
    """The integer that a number is, whole floats included; None for everything else.

    >>> as_whole(16 / 2), as_whole(2.5), as_whole("8")
    (8, None, None)
    """
    if hasattr(value, "__index__"):
        try:
            return index(value)
        except TypeError:  # An array of several.
            return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    return None


def count(op: str, name: str, value: Any, error: type[Error] = RangeError) -> int:
    """Refuse what is no whole number, with a `CallError`, and what is below one, with an `error`."""
    found = whole(op, name, value)
    if found < 1:
        raise error(f"{op}: expected `{name}` to be at least 1, got {value}")
    return found


def callee(op: str, name: str, value: Any) -> Any:
    """Refuse what cannot be called. Returned as it is."""
    if callable(value):
        return value
    raise CallError(f"{op}: expected `{name}` to be something to call, got {value!r}")


def text(op: str, name: str, value: Any) -> str:
    """Refuse what is no string."""
    if isinstance(value, str):
        return value
    raise CallError(f"{op}: expected `{name}` to be a string, got {value!r}")


MOST_ITEMS = 1 << 16
"""What is no list or tuple may have this many items: there may be no end to them."""


def items(op: str, name: str, value: Iterable[Any]) -> list[Any]:
    """The items of an argument as a list; refuse what may have no end to them."""
    if isinstance(value, (list, tuple)):
        return list(value)
    found = list(islice(value, MOST_ITEMS + 1))
    if len(found) > MOST_ITEMS:
        raise CallError(f"{op}: expected at most {MOST_ITEMS} items as `{name}`, got more")
    return found
