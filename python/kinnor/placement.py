"""Places: which process of a pipeline has the functions and parameters that a block builds.

Knows contexts, whose device is the place; knows no processes. `kinnor.communicators.Pipeline` divides a graph by it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from . import _check
from ._core import RangeError
from .context import Context, context_scope, get_current_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._core import Function

__all__ = ["building_for", "is_elsewhere", "place", "place_of"]

PREFIX = "place:"


_own: ContextVar[int | None] = ContextVar("kinnor.place", default=None)
"""The place whose part of a network a task builds; None where it builds all of it."""


@contextmanager
def place(rank: int) -> Iterator[None]:
    """Give the functions and parameters that a block builds to a process of a pipeline.

    Without a pipeline it has no effect: the same network runs in one process.

    Args:
        rank: The number of the process, from 0.

    Yields:
        Nothing.

    Raises:
        RangeError: If the number is below 0.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> with nn.place(0):
        ...     h = PF.affine(nn.Variable((4, 8)), 16, name="first")
        >>> with nn.place(1):
        ...     y = PF.affine(h, 2, name="second")
        >>> y.parent.context.device_id
        'place:1'
    """
    number = _check.whole("place", "rank", rank)
    if number < 0:
        raise RangeError(f"place: expected `rank` to be 0 or more, got {number}")
    outer = get_current_context()
    with context_scope(Context(outer.backend, outer.array_class, f"{PREFIX}{number}")):
        yield


def place_of(function: Function) -> int | None:
    """The place that a function was built for; None where there is none."""
    return _number(function.context)


def is_elsewhere() -> bool:
    """Whether what is built now belongs to another process, and needs no memory here."""
    own = _own.get()
    if own is None:
        return False
    number = _number(get_current_context())
    return number is not None and number != own


@contextmanager
def building_for(own: int | None) -> Iterator[None]:
    """Keep memory for the parameters of one place alone, within a block; None for those of all."""
    outer = _own.get()
    _own.set(own)
    try:
        yield
    finally:
        _own.set(outer)


def _number(context: Context) -> int | None:
    name = context.device_id
    return int(name[len(PREFIX) :]) if name.startswith(PREFIX) else None
