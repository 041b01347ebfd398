"""Modes of building a graph: run functions at once, recompute what they gave.

A setter changes the default of the process. A `with` block changes its own thread only, and there its own task: where
tasks of `asyncio` take turns, each has the modes of the blocks that it is in. A new task starts in those of the task
that makes it, as does what `asyncio.to_thread` runs; a new thread starts in none.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from . import _check, _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = [
    "auto_forward",
    "get_auto_forward",
    "get_global_recompute",
    "memory_budget",
    "recompute",
    "recompute_fn",
    "set_auto_forward",
    "set_global_recompute",
]

P = ParamSpec("P")
R = TypeVar("R")

surroundings: list[Callable[[], Callable[[], AbstractContextManager[object]]]] = []
"""Called when `functions.forget` first runs a segment. Each returns a function that restores a state of the program,
such as the scope of parameters, in a `with` block around each later run.
"""


@contextmanager
def auto_forward(auto: bool = True) -> Iterator[None]:
    """Run functions as soon as they are built, within a `with` block.

    Args:
        auto: Whether to; False builds static graphs.

    Yields:
        Nothing.
    """
    entered = _core.enter_mode("auto_forward", _check.flag("auto_forward", "auto", auto))
    try:
        yield
    finally:
        _core.leave_mode([entered])


def set_auto_forward(auto: bool) -> None:
    """Run functions as soon as they are built, from now on, in every thread without an `auto_forward` block.

    Args:
        auto: Whether to.
    """
    _core.set_auto_forward_mode(_check.flag("set_auto_forward", "auto", auto))


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
    entered = _core.enter_mode("recompute", _check.flag("recompute", "recompute_", recompute_))
    try:
        yield
    finally:
        _core.leave_mode([entered])


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


@contextmanager
def memory_budget(bytes: int | str | None) -> Iterator[None]:
    """Keep training steps within this much memory: values are dropped and computed again as need be.

    A static graph that is run forward within the block plans that run and the backward run after it, so that its
    arrays (parameters, inputs, values between functions, and gradients of them all) never take more than the budget
    at a time. What to drop is chosen so that little is computed twice; gradients are the same to the bit. The backward
    run gives memory back as `clear_buffer=True` says. Values of intermediate variables are not kept for reading: set
    `persistent` on those to keep. What else the program holds, and the room that kernels work in, comes on top.
    `forward_all` plans for backward runs from each of its variables.

    Where functions run as soon as they are built (`auto_forward`), values that no variable, array or view in Python has
    hold of are given up when room is wanted, and come back for the backward run, for `autodiff` or to be read: those
    that cost little for the bytes they give, and that are wanted last. There the budget is for all arrays there are
    (`memory_stats()["live"]`), but for those that other threads have made under budgets of their own. A backward run
    keeps to it outside of the block too.

    Args:
        bytes: The budget, as a number or as text with a unit: `"64M"` is 64 MiB (K, M, G or T); None for none.

    Yields:
        Nothing.

    Raises:
        BudgetError: Within the block, where a budget cannot be kept to: before a static graph runs, or before the
            function that takes too much. `least` says what would do, at once what that function takes.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable((1024, 64), need_grad=True)
        >>> h = x
        >>> for _ in range(16):
        ...     h = F.tanh(h)
        >>> loss = F.mean(h)
        >>> with nn.memory_budget(12 * x.size * 4):
        ...     loss.forward()
        ...     loss.backward()
    """
    if bytes is not None:
        bytes = _check.size("memory_budget", "bytes", bytes)
        if bytes < 0:
            raise _core.ArgumentError(f"memory_budget: expected `bytes` to be 0 or more, got {bytes}")
    entered = _core.enter_mode("memory_budget", bytes)
    try:
        yield
    finally:
        _core.leave_mode([entered])


def set_global_recompute(recompute: bool) -> None:
    """Mark variables to be recomputed from now on, in every thread without a `recompute` block.

    Args:
        recompute: Whether to.
    """
    _core.set_recompute_mode(_check.flag("set_global_recompute", "recompute", recompute))


def get_global_recompute() -> bool:
    """Whether variables that are made now are marked to be recomputed.

    Returns:
        The mode of this thread.
    """
    return _core.recompute_mode()
