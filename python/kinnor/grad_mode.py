"""Grad modes: enable or disable gradients of newly built functions, for the current thread or task."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from . import _check, _core
from ._core import CallError
from .modes import Scope

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F")


class GradMode(Scope):
    """A grad mode as a context manager and a decorator. One object may be entered repeatedly, also nested."""

    def __init__(self, mode: bool) -> None:
        super().__init__("grad", mode)

    def __call__(self, f: F) -> F:
        """Decorates a function, generator function or coroutine function: each call runs in this mode."""
        decorated: F = decorate(f, bool(self.value))
        return decorated


def decorate(f: Any, mode: bool) -> Any:
    """A function whose calls run in a grad mode. Of generators and coroutines, each step does."""
    if inspect.isclass(f) or not callable(f):
        raise TypeError(f"grad mode: expected a function to decorate, got {f!r}")
    if inspect.isgeneratorfunction(f):

        @functools.wraps(f)
        def stepping(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            """Runs a generator with the mode set in its steps only."""
            return (yield from steps(f(*args, **kwargs), mode))

        return stepping
    if inspect.iscoroutinefunction(f):

        @functools.wraps(f)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            """Awaits a coroutine with the mode set in its steps only."""
            return await Awaiting(f(*args, **kwargs), mode)

        return awaiting

    @functools.wraps(f)
    def calling(*args: Any, **kwargs: Any) -> Any:
        """Calls the function with the mode set."""
        with GradMode(mode):
            return f(*args, **kwargs)

    return calling


class Awaiting:
    """A coroutine whose steps run in a grad mode."""

    def __init__(self, coroutine: Any, mode: bool) -> None:
        self.coroutine = coroutine
        self.mode = mode

    def __await__(self) -> Generator[Any, Any, Any]:
        """Runs the coroutine step by step."""
        return steps(self.coroutine, self.mode)


def steps(inner: Any, mode: bool) -> Generator[Any, Any, Any]:
    """Runs a generator or coroutine step by step in a grad mode. Between steps the caller's mode applies."""
    step, argument = inner.send, None
    try:
        while True:
            with GradMode(mode):
                value = step(argument)
            try:
                sent = yield value
            except GeneratorExit:
                with GradMode(mode):
                    inner.close()
                raise
            except BaseException as error:
                step, argument = inner.throw, error
            else:
                step, argument = inner.send, sent
    except StopIteration as stop:
        return stop.value


class no_grad(GradMode):
    """Builds functions without gradients: a context manager, and a decorator with or without parentheses.

    Explicitly created variables keep their `need_grad`. Registered parameters do not change, but enter the graph with
    `need_grad=False`.

    Args:
        no_grad_: False leaves gradients enabled. A function is decorated.

        >>> import kinnor as nn
        >>> x = nn.Variable((2,), need_grad=True)
        >>> with nn.no_grad():
        ...     y = x * 2
        >>> y.need_grad
        False
    """

    def __new__(cls, no_grad_: Any = True) -> Any:
        """Decorates the argument if it is a function."""
        if callable(no_grad_):
            return decorate(no_grad_, False)
        return super().__new__(cls)

    def __init__(self, no_grad_: bool = True) -> None:
        super().__init__(no_grad_ is not True and not _check.flag("no_grad", "no_grad_", no_grad_))


class enable_grad(GradMode):
    """Builds functions with gradients, even inside of `no_grad`: a context manager and a decorator."""

    def __new__(cls, function: Any = None) -> Any:
        """Decorates the argument if it is a function."""
        if callable(function):
            return decorate(function, True)
        return super().__new__(cls)

    def __init__(self, function: None = None) -> None:
        if function is not None:
            raise CallError(f"enable_grad: expected a function to decorate or nothing, got {function!r}")
        super().__init__(True)


class set_grad_enabled(GradMode):
    """Sets the grad mode immediately. As a context manager it restores the mode on exit.

    As a decorator it applies to calls of the function only.

    Args:
        mode: True to build functions with gradients.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(_check.flag("set_grad_enabled", "mode", mode))
        self.before = _core.grad_mode()
        _core.put_mode("grad", self.value)

    def __enter__(self) -> None:
        _core.put_mode("grad", self.before)
        super().__enter__()

    def __call__(self, f: F) -> F:
        """Decorates a function, and restores the mode from before."""
        _core.put_mode("grad", self.before)
        return super().__call__(f)


def is_grad_enabled() -> bool:
    """True if newly built functions may have gradients.

    Returns:
        The mode of this thread.
    """
    return _core.grad_mode()
