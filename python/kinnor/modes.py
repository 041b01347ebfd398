"""Modes of building a graph: run functions at once, recompute what they gave.

A setter changes the default of the process; a `with` block changes its own thread only.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from . import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "auto_forward",
    "get_auto_forward",
    "get_global_recompute",
    "recompute",
    "recompute_fn",
    "set_auto_forward",
    "set_global_recompute",
]

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def auto_forward(auto: bool = True) -> Iterator[None]:
    """Run functions as soon as they are built, within a `with` block.

    Args:
        auto: Whether to; False builds static graphs.

    Yields:
        Nothing.
    """
    outer = _core.scope_auto_forward(bool(auto))
    try:
        yield
    finally:
        _core.scope_auto_forward(outer)


def set_auto_forward(auto: bool) -> None:
    """Run functions as soon as they are built, from now on, in every thread without an `auto_forward` block.

    Args:
        auto: Whether to.
    """
    _core.set_auto_forward_mode(bool(auto))


def get_auto_forward() -> bool:
    """Whether functions run as soon as they are built.

    Returns:
        The mode of this thread.
    """
    return _core.auto_forward_mode()


@contextmanager
def recompute(recompute_: bool = True) -> Iterator[None]:
    """Mark variables made within a `with` block to be dropped after use and computed again for the backward run.

    Args:
        recompute_: Whether to.

    Yields:
        Nothing.
    """
    outer = _core.scope_recompute(bool(recompute_))
    try:
        yield
    finally:
        _core.scope_recompute(outer)


@overload
def recompute_fn(recompute_: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def recompute_fn(recompute_: Callable[P, R]) -> Callable[P, R]: ...
def recompute_fn(recompute_: Any = True) -> Any:
    """Decorate a function so that it runs within `recompute(recompute_)`.

    Args:
        recompute_: Whether to; or, without parentheses, the function.

    Returns:
        The decorator, or the decorated function.
    """
    if callable(recompute_):
        return recompute_fn(True)(recompute_)

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with recompute(recompute_):
                return f(*args, **kwargs)

        return wrapped

    return decorate


def set_global_recompute(recompute: bool) -> None:
    """Mark variables to be recomputed from now on, in every thread without a `recompute` block.

    Args:
        recompute: Whether to.
    """
    _core.set_recompute_mode(bool(recompute))


def get_global_recompute() -> bool:
    """Whether variables that are made now are marked to be recomputed.

    Returns:
        The mode of this thread.
    """
    return _core.recompute_mode()
