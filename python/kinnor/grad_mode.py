"""Grad modes: whether what is built now takes part in differentiation. They hold for one thread, and one task in it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from . import _check, _core
from ._core import CallError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F")


class GradMode:
    """A grad mode as a context manager and as a decorator. One object may be entered again while it is entered."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.entered: list[int] = []

    def __enter__(self) -> None:
        self.entered.append(_core.enter_mode("grad", self.mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = _core.leave_mode(self.entered)
        if left is not None:  # A generator may be closed in another task.
            self.entered.remove(left)

    def __call__(self, f: F) -> F:
        """Decorate a function, generator function or coroutine function: each call runs in this mode."""
        decorated: F = decorate(f, self.mode)
        return decorated


def decorate(f: Any, mode: bool) -> Any:
    """Run each call of a function in a grad mode; of generators and coroutines, each step."""
    if inspect.isclass(f) or not callable(f):
        raise TypeError(f"grad mode: expected a function to decorate, got {f!r}")
    if inspect.isgeneratorfunction(f):

        @functools.wraps(f)
        def stepping(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from steps(f(*args, **kwargs), mode))

        return stepping
    if inspect.iscoroutinefunction(f):

        @functools.wraps(f)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            return await Awaiting(f(*args, **kwargs), mode)

        return awaiting

    @functools.wraps(f)
    def calling(*args: Any, **kwargs: Any) -> Any:
        with GradMode(mode):
            return f(*args, **kwargs)

    return calling


class Awaiting:
    """A coroutine whose steps run in a grad mode."""

    def __init__(self, coroutine: Any, mode: bool) -> None:
        self.coroutine = coroutine
        self.mode = mode

    def __await__(self) -> Generator[Any, Any, Any]:
        """Step through the coroutine."""
        return steps(self.coroutine, self.mode)


def steps(inner: Any, mode: bool) -> Generator[Any, Any, Any]:
    """Step through a generator or coroutine in a grad mode, which its consumer does not see."""
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
    """What is built within needs no gradient: a context manager, and a decorator with or without parentheses.

    Variables that are made by hand keep their own flag; parameters stay registered as they are and are handed to the
    graph as needing none.

    Args:
        no_grad_: False leaves gradients on; a function is decorated.

        >>> import kinnor as nn
        >>> x = nn.Variable((2,), need_grad=True)
        >>> with nn.no_grad():
        ...     y = x * 2
        >>> y.need_grad
        False
    """

    def __new__(cls, no_grad_: Any = True) -> Any:
        """Decorate at once where a function is given."""
        if callable(no_grad_):
            return decorate(no_grad_, False)
        return super().__new__(cls)

    def __init__(self, no_grad_: bool = True) -> None:
        super().__init__(not _check.flag("no_grad", "no_grad_", no_grad_))


class enable_grad(GradMode):
    """What is built within may need a gradient, also inside of `no_grad`."""

    def __new__(cls, function: Any = None) -> Any:
        """Decorate at once where a function is given."""
        if callable(function):
            return decorate(function, True)
        return super().__new__(cls)

    def __init__(self, function: None = None) -> None:
        if function is not None:
            raise CallError(f"enable_grad: expected a function to decorate or nothing, got {function!r}")
        super().__init__(True)


class set_grad_enabled(GradMode):
    """Sets the grad mode at once; as a context manager it is set back on leaving, as a decorator it holds for calls.

    Args:
        mode: Whether what is built from now on may need a gradient.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(_check.flag("set_grad_enabled", "mode", mode))
        self.before = _core.grad_mode()
        _core.put_mode("grad", self.mode)

    def __enter__(self) -> None:
        _core.put_mode("grad", self.before)
        super().__enter__()

    def __call__(self, f: F) -> F:
        """Decorate a function; the mode is as it was before."""
        _core.put_mode("grad", self.before)
        return super().__call__(f)


def is_grad_enabled() -> bool:
    """Whether what is built now may need a gradient.

    Returns:
        The mode of this thread.
    """
    return _core.grad_mode()
