"""Placement: assigns the functions and parameters of a block to a process of a pipeline.

The place is stored as the `device_id` of the context. `kinnor.distributed.Pipeline` divides a graph by it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from . import _check
from ._core import RangeError
from .context import Context, context_scope, get_current_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._core import Function

__all__ = ["building_for", "changed", "is_elsewhere", "place", "place_of", "skips_init"]

_T = TypeVar("_T")

PREFIX = "place:"
"""Start of a context's `device_id` that stands for a place. The number of the place follows."""


_own: ContextVar[int | None] = ContextVar("kinnor.place", default=None)
"""The place whose parameters a task allocates while it builds a network; None for all places."""

skips_init: ContextVar[bool] = ContextVar("kinnor.skip_init", default=False)
"""True if initializers are not called in this thread or task, so that new parameters have no memory."""


@contextmanager
def place(rank: int) -> Iterator[None]:
    """Assign the functions and parameters that a block builds to a process of a pipeline.

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
    """The place to which a function is assigned, or None."""
    return _number(function.context)


def is_elsewhere() -> bool:
    """True if the current place belongs to another process, so that new parameters need no memory here."""
    own = _own.get()
    if own is None:
        return False
    number = _number(get_current_context())
    return number is not None and number != own


@contextmanager
def building_for(own: int | None) -> Iterator[None]:
    """Allocates parameters of the place `own` only, in a `with` block. With None, parameters of all places."""
    with changed(_own, own):
        yield


@contextmanager
def changed(setting: ContextVar[_T], value: _T) -> Iterator[None]:
    """Changes a setting of this thread or task in a `with` block."""
    outer = setting.get()
    setting.set(value)
    try:
        yield
    finally:
        setting.set(outer)


def _number(context: Context) -> int | None:
    """The place of a context, or None."""
    name = context.device_id
    return int(name[len(PREFIX) :]) if name.startswith(PREFIX) else None
