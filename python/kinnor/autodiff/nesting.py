"""Nested derivatives: a derivative inside of a differentiated function needs a graph."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..grad_mode import is_grad_enabled

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["differentiating", "is_nested"]

_is_differentiated: ContextVar[bool] = ContextVar("kinnor.autodiff.is_differentiated", default=False)


@contextmanager
def differentiating() -> Iterator[None]:
    """Marks a `with` block that runs a function to be differentiated."""
    token = _is_differentiated.set(True)
    try:
        yield
    finally:
        _is_differentiated.reset(token)


def is_nested() -> bool:
    """True if a derivative taken now will itself be differentiated. False under `no_grad`."""
    return _is_differentiated.get() and is_grad_enabled()
