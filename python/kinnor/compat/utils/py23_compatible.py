"""The arguments of a Python function in the form of the former `inspect.getargspec`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ArgSpec", "getargspec", "getargspec_py3"]


class ArgSpec(NamedTuple):
    """The positional arguments of a Python function."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(func: Callable[..., Any]) -> ArgSpec:
    """The arguments of a Python function, without keyword-only arguments.

    Args:
        func: The function.

    Examples:
        >>> getargspec(lambda x, y=1, *rest: x)
        ArgSpec(args=['x', 'y'], varargs='rest', keywords=None, defaults=(1,))
    """
    found = inspect.getfullargspec(func)
    return ArgSpec(found.args, found.varargs, found.varkw, found.defaults)


getargspec_py3 = getargspec
