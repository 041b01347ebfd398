"""Checks of plain arguments. Each raises an error with a uniform text if the argument does not fit."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import islice, pairwise
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._core import CallError, Error, ParameterError, RangeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

LEVELS = 128
"""The most levels that the name of a parameter in a file may have."""

LONGEST = 4096
"""The most characters that it may have."""


def flag(op: str, name: str, value: Any) -> bool:
    """The argument as a bool. Raises CallError unless it is True, False, a NumPy bool, 0 or 1."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise CallError(f"{op}: expected `{name}` to be True or False, got {value!r}")


def is_truth(value: Any) -> bool:
    """True for True and False, which are no numbers; always False under NNabla's names.

    A truth value among numbers is mostly meant for another argument, as in `slice(x, True)`.
    """
    return (value is True or value is False) and not _core.is_nnabla()


def number(op: str, name: str, value: Any) -> Any:
    """The argument, unchanged. Raises CallError unless it is a real number or an array of shape ()."""
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf" and not is_truth(value):
        return value
    raise CallError(f"{op}: expected `{name}` to be a number, got {value!r}")


def arrays(op: str, **given: Any) -> None:
    """Raises CallError unless each of the arguments is a Variable or an NdArray."""
    for name, value in given.items():
        if not isinstance(value, (_core.Variable, _core.NdArray)):
            expected = f"`{name}` to be a Variable or an NdArray"
            raise CallError(f"{op}: expected {expected}, got {type(value).__name__}")


def whole(op: str, name: str, value: Any) -> int:
    """The argument as an int. Raises CallError unless it is a whole number; floats such as `16 / 2` count as one."""
    found = as_whole(value)
    if found is None:
        raise CallError(f"{op}: expected `{name}` to be a whole number, got {value!r}")
    return found


def as_whole(value: Any) -> int | None:
    """The argument as an int if it is an integer or a whole float, else None.

    >>> as_whole(16 / 2), as_whole(2.5), as_whole("8")
    (8, None, None)
    >>> as_whole(True)
    """
    if (value is True or value is False) and not _core.is_nnabla():  # As `is_truth`, which takes longer to call.
        return None
    if hasattr(value, "__index__"):
        try:
            return index(value)
        except TypeError:  # An array of several elements.
            return None
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    return None


def size(op: str, name: str, value: Any) -> int:
    """The number of bytes that a whole number or a text with a unit of 1,024 stands for.

    >>> size("example", "bytes", "64M")
    67108864
    """
    if isinstance(value, str):
        digits, unit = (value[:-1], value[-1:].upper()) if value[-1:].upper() in UNITS else (value, "")
        if digits.isascii() and digits.isdigit():
            return int(digits) << UNITS.get(unit, 0)
    elif hasattr(value, "__index__"):
        return index(value)
    raise CallError(
        f"{op}: expected `{name}` to be a number of bytes, as 67108864 or '64M' (K, M, G or T), or None, got {value!r}"
    )


UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
"""Letters after a number of bytes, and the power of two that each stands for."""


def count(op: str, name: str, value: Any, error: type[Error] = RangeError) -> int:
    """The argument as an int. Raises CallError unless it is a whole number, and `error` if it is below 1."""
    found = whole(op, name, value)
    if found < 1:
        raise error(f"{op}: expected `{name}` to be at least 1, got {value}")
    return found


def callee(op: str, name: str, value: Any) -> Any:
    """The argument, unchanged. Raises CallError unless it is callable."""
    if callable(value):
        return value
    raise CallError(f"{op}: expected `{name}` to be something to call, got {value!r}")


def mapping(op: str, name: str, value: Any) -> dict[str, Any]:
    """The argument as a dict, empty for None. Raises CallError unless it is a mapping or None."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    raise CallError(f"{op}: expected `{name}` to be a dict or None, got {value!r}")


def text(op: str, name: str, value: Any) -> str:
    """The argument, unchanged. Raises CallError unless it is a string."""
    if isinstance(value, str):
        return value
    raise CallError(f"{op}: expected `{name}` to be a string, got {value!r}")


MOST_ITEMS = 1 << 16
"""The most items that an argument other than a list or tuple may have. Guards against endless iterators."""


def items(op: str, name: str, value: Iterable[Any]) -> list[Any]:
    """The items of an iterable argument as a list. Raises CallError for iterators of more than `MOST_ITEMS` items."""
    if isinstance(value, (list, tuple)):
        return list(value)
    found = list(islice(value, MOST_ITEMS + 1))
    if len(found) > MOST_ITEMS:
        raise CallError(f"{op}: expected at most {MOST_ITEMS} items as `{name}`, got more")
    return found


def listed(names: list[str]) -> str:
    """Some of the names, for a message.

    Args:
        names: The names.

    Returns:
        The first names in quotes, and the number of the others.
    """
    most = 8
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def split(op: str, path: str) -> list[str]:
    """The names in a path, without the empty names at its ends and between doubled slashes."""
    if not isinstance(path, str):
        raise CallError(f"{op}: expected a name, got {path!r}")
    if path and "/" not in path:  # As in nearly all calls, which dynamic programs repeat.
        return [path]
    return [name for name in path.split("/") if name]


def check_paths(op: str, paths: list[str]) -> None:
    """Raises ParameterError for malformed names and for paths that cannot be in one tree, such as equal ones."""
    ends = []
    for path in paths:
        names = split(op, path)
        if len(path) > LONGEST or len(names) > LEVELS:
            raise ParameterError(
                f"{op}: expected names of at most {LONGEST} characters and {LEVELS} levels, got {len(path)} and "
                f"{len(names)} in {path[:40]!r}..."
            )
        if not names or "\0" in path or not {".", ".."}.isdisjoint(names):
            raise ParameterError(f"{op}: expected the name of a parameter, got {path!r}")
        ends.append("/".join((*names, "")))
    # Sorted, a path is directly followed by paths that lead through it.
    for first, second in pairwise(sorted(ends)):
        if first == second:
            raise ParameterError(f"{op}: expected different names, got {first[:-1]!r} twice")
        if second.startswith(first):
            raise ParameterError(
                f"{op}: expected the name of a parameter, got {second[:-1]!r}, which leads through one"
            )


def explained(op: str, elsewhere: Mapping[str, str], surplus: str | None = None) -> Callable[[_F], _F]:
    """A decorator for functions with errors that lead from arguments of other libraries to their own arguments.

    Args:
        op: Name of the function, for errors.
        elsewhere: Arguments of other libraries, and for each the argument here, or text that says what to write.
        surplus: The arguments without a name, for an error about too many of them; by default Python raises it.

    Returns:
        The decorator. The functions raise CallError, which is a TypeError.

    >>> @explained("resize", {"dim": "axis"})
    ... def resize(x, axis=0):
    ...     return x
    >>> resize(3, dim=1)
    Traceback (most recent call last):
        ...
    kinnor.CallError: resize: expected (x, axis), got an argument 'dim'; did you mean 'axis'?
    """

    def decorated(function: _F) -> _F:
        """The function, behind a check of its arguments' names."""
        code = function.__code__
        most = code.co_argcount
        parameters = code.co_varnames[: most + code.co_kwonlyargcount]

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            """Checks the names and the number of arguments, and calls the function."""
            for name in kwargs:
                if name not in parameters:
                    from ._suggest import advice  # On a mistake only, not on import.

                    known = [each for each in parameters if each != "self"]
                    hint = advice(name, known, elsewhere)
                    expected = "one of its arguments" if hint and len(known) > 8 else f"({', '.join(known)})"
                    raise CallError(f"{op}: expected {expected}, got an argument {name!r}{hint}")
                if name in parameters[: len(args)]:
                    twice = args[parameters.index(name)]
                    raise CallError(
                        f"{op}: expected ({', '.join(parameters).removeprefix('self, ')}), got {twice!r} as {name!r} "
                        f"and {name}={kwargs[name]!r}"
                    )
            if surplus is not None and len(args) > most:
                raise CallError(f"{op}: expected {surplus}, got {len(args)} arguments without a name")
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorated
