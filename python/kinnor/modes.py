"""Modes: eager execution (`auto_forward`), recomputation (`recompute`) and memory budgets (`memory_budget`).

A setter changes the default of the process. A `with` block changes the mode of the current thread or `asyncio` task
only. A new task, and a call by `asyncio.to_thread`, inherits the modes of its creator. A new thread starts with the
defaults. A generator that suspends within a block must be closed by the thread or task that runs it: another one gets
an error, as it cannot end the block there.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from _thread import get_ident
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, NoReturn, overload

from . import _check, _core
from ._core import CallError, GraphError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import ParamSpec, TypeVar

    _P = ParamSpec("_P")
    """The parameters of a decorated function."""
    _R = TypeVar("_R")
    """The result of a decorated function."""

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

_modules = sys.modules

surroundings: list[Callable[[], Callable[[], AbstractContextManager[object]]]] = []
"""Called when `functions.forget` first runs a segment. Each returns a function that restores a state of the program,
such as the scope of parameters, in a `with` block around each later run.
"""


def owner() -> Any:
    """The current task of `asyncio` as a weak reference, or else the number of the current thread."""
    if "asyncio" in _modules and (asyncio := _modules["asyncio"])._get_running_loop() is not None:
        task = asyncio.current_task()
        return get_ident() if task is None else weakref.ref(task)
    return get_ident()


def check_owner(scope: str, owners: list[Any]) -> None:
    """Removes the current thread or task from the owners of a block.

    A generator that suspends in a block may be closed by another thread or task, or by the garbage collector there.
    That one cannot change the modes of the owner.

    Args:
        scope: Name of the scope in errors.
        owners: The threads and tasks that entered the block and did not leave it.

    Raises:
        GraphError: If the current one is not among them, and the last of them still runs: the block stays open there.
    """
    here = owner()
    try:
        owners.remove(here)
        return
    except ValueError:
        other = owners.pop() if owners else here
    title = None
    if isinstance(other, int):
        import threading  # On a mistake only, not on import.

        title = next((f"thread {thread.name!r}" for thread in threading.enumerate() if thread.ident == other), None)
    elif (task := other()) is not None and not task.done():
        title = f"task {task.get_name()!r}"
    if title is not None:
        raise GraphError(
            f"{scope}: expected {title}, which entered the block, to leave it, got another one that closed a generator "
            "with the block; the block stays open there, so close generators where they are used"
        )


class ScopeClass(type):
    """The class of classes of scopes. It makes `with nn.no_grad:`, without parentheses, an error that says so."""

    def __enter__(cls) -> NoReturn:
        """Raises CallError."""
        known = [name for name, each in inspect.signature(cls).parameters.items() if each.default is each.empty]
        raise CallError(f"{cls.__name__}: expected a call, write `with {cls.__name__}({', '.join(known)}):`")

    def __exit__(cls, *error: object) -> None:
        """Never called: Python looks for it before it enters."""


class Scope(ContextDecorator, metaclass=ScopeClass):
    """A mode of the engine in a `with` block or in calls of a decorated function. It may be entered repeatedly."""

    def __init__(self, mode: str, value: bool | int | None) -> None:
        self.mode = mode
        self.value = value
        self.entered: list[int] = []
        """The engine's tokens of the blocks that are open."""
        self.owners: list[Any] = []
        """The threads and tasks that entered these blocks."""

    def __enter__(self) -> Any:
        self.entered.append(_core.enter_mode(self.mode, self.value))
        self.owners.append(owner())

    def __exit__(self, *error: object) -> None:
        self.leave()
        check_owner(_TITLES.get(self.mode, self.mode), self.owners)

    def leave(self) -> int | None:
        """Leaves the innermost block of this task. Returns its token, or None if the task has none."""
        left: int | None = _core.leave_mode(self.entered)
        if left is not None:  # A generator may be closed in another task.
            self.entered.remove(left)
        return left


_TITLES = {"grad": "no_grad", "context": "context_scope", "anomaly": "detect_anomaly"}
"""Names of scopes in Python, if the engine has other names."""


class auto_forward(Scope):
    """Run functions eagerly, that is as soon as they are built: a context manager and a decorator.

    Args:
        auto: Whether to run eagerly; False builds static graphs.
    """

    def __init__(self, auto: bool = True) -> None:
        super().__init__("auto_forward", _check.flag("auto_forward", "auto", auto))


def set_auto_forward(auto: bool) -> None:
    """Set the default of eager execution, for all threads outside of an `auto_forward` block.

    Args:
        auto: Whether functions run as soon as they are built.
    """
    _core.set_auto_forward_mode(_check.flag("set_auto_forward", "auto", auto))


def get_auto_forward() -> bool:
    """True if functions run as soon as they are built.

    Returns:
        The mode of this thread.
    """
    return _core.auto_forward_mode()


class recompute(Scope):
    """Mark all variables for recomputation, that is freed after use, and recomputed for backward runs.

    It is a context manager and a decorator.

    Args:
        recompute_: Whether to mark them.
    """

    def __init__(self, recompute_: bool = True) -> None:
        super().__init__("recompute", _check.flag("recompute", "recompute_", recompute_))


@overload
def recompute_fn(recompute_: bool = True) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
@overload
def recompute_fn(recompute_: Callable[_P, _R]) -> Callable[_P, _R]: ...
def recompute_fn(recompute_: Any = True) -> Any:
    """Decorate a function so that it runs within `recompute(recompute_)`.

    Args:
        recompute_: Whether to recompute; or, if the decorator is used without parentheses, the function.

    Returns:
        The decorator, or the decorated function.
    """
    if callable(recompute_):
        return recompute_fn(True)(recompute_)

    def decorate(f: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorates a function."""

        @functools.wraps(f)
        def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            """Calls the function within `recompute(recompute_)`."""
            with recompute(recompute_):
                return f(*args, **kwargs)

        return wrapped

    return decorate


class memory_budget(Scope):
    """Limit the memory of training steps: values are freed and recomputed as necessary. Gradients stay the same bits.

    For a static graph, a forward run in the block plans itself and the next backward run. The plan keeps parameters,
    inputs, intermediate values and all gradients within the budget, with little recomputation. The backward run frees
    memory like `clear_buffer=True`. Intermediate values cannot be read afterwards, unless `persistent` is set. Scratch
    buffers of kernels and all other memory of the program are not counted. `forward_all` plans for backward runs from
    each of its variables.

    In eager execution (`auto_forward`) the budget covers all live arrays (`memory_stats()["live"]`), except those made
    by other threads under their own budgets. When memory is short, the engine evicts values that no Python object
    refers to. It prefers values that are cheap to recompute for their size and needed last. Evicted values are
    recomputed for backward runs, `autodiff` and reads. A backward run respects the budget outside of the block, too.

    It is a context manager and a decorator.

    Args:
        bytes: The budget, as a number or as text with a unit: `"64M"` is 64 MiB (K, M, G or T); None for none.

    Raises:
        BudgetError: If a budget cannot be kept: before a static graph runs, or before the eager function that needs
            too much. Its `least` is a sufficient budget, in eager execution the need of that function.

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

    def __init__(self, bytes: int | str | None) -> None:
        if bytes is not None:
            bytes = _check.size("memory_budget", "bytes", bytes)
            if bytes < 0:
                raise _core.ArgumentError(f"memory_budget: expected `bytes` to be 0 or more, got {bytes}")
        super().__init__("memory_budget", bytes)


def set_global_recompute(recompute: bool) -> None:
    """Set the default of recomputation, for all threads outside of a `recompute` block.

    Args:
        recompute: Whether new variables are marked for recomputation.
    """
    _core.set_recompute_mode(_check.flag("set_global_recompute", "recompute", recompute))


def get_global_recompute() -> bool:
    """True if new variables are marked for recomputation.

    Returns:
        The mode of this thread.
    """
    return _core.recompute_mode()
