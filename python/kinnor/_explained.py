"""A decorator for errors that lead from arguments of other libraries to arguments of a function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from ._core import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_F = TypeVar("_F", bound="Callable[..., Any]")


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
                    expected = f"({', '.join(known)})" if len(known) <= 8 else "one of its arguments"
                    hint = advice(name, known, elsewhere)
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
