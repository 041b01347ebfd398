"""The decorator of parametric functions: it adds a parameter scope and the argument `name`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .._core import CallError
from .._suggest import question
from ..parameter.tree import call_within, place, split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["parametric", "parametric_function_api"]

F = TypeVar("F", bound="Callable[..., Any]")

ParameterDescription = tuple[str, str, str, bool]
"""Name, meaning, shape and need_grad of a registered parameter."""


def parametric_function_api(
    scope_name: str | None = None, param_desc: Sequence[ParameterDescription] | None = None
) -> Callable[[F], F]:
    """Make a function parametric: its parameters are registered in the scope `[name/]scope_name`.

    The function gets a last argument `name=None`. It may declare that argument for type checkers, but does not receive
    it. If a call fails, the parameters that it has registered are removed.

    Args:
        scope_name: Name of the scope; by default the name of the function.
        param_desc: For the docstring, a tuple (name, meaning, shape, need_grad) for each parameter.

    Returns:
        A decorator for a function with an argument `fix_parameters`.

    Raises:
        TypeError: If the decorated function has no argument `fix_parameters`, or has variadic or keyword-only ones.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> from kinnor.initializer import ConstantInitializer
        >>> from kinnor.parameter import get_parameter_or_create
        >>> @PF.parametric_function_api("scale", [("s", "Factor", "(1,)", True)])
        ... def scale(x, fix_parameters=False):
        ...     return x * get_parameter_or_create("s", (1,), ConstantInitializer(2.0), not fix_parameters)
        >>> x = nn.Variable.from_numpy_array([1.0, 3.0])
        >>> with nn.parameter_scope("demo-api"):
        ...     y = scale(x, name="last")
        ...     list(nn.get_parameters())
        ['last/scale/s']
        >>> y.forward()
        >>> y.d
        array([2., 6.], dtype=float32)
    """

    def decorate(function: F) -> F:
        """Decorates a function."""
        return parametric(function, scope_name, param_desc or ())

    return decorate


def parametric(
    function: F,
    scope_name: str | None,
    param_desc: Sequence[ParameterDescription],
    again: Callable[..., Any] | None = None,
) -> F:
    """Makes a function parametric, see `parametric_function_api`.

    Args:
        function: The function.
        scope_name: Name of the scope; by default the name of the function.
        param_desc: The parameters, for the docstring.
        again: Function that a call tries first if its scope exists. It gets the scope, then the arguments of the
            call. It returns the result, or None if a parameter is missing or it does not know the arguments. It must
            call no code of the user and register nothing.
    """
    signature = _with_name(function)
    last = len(signature.parameters) - 1
    scope = function.__name__ if scope_name is None else scope_name
    names = split("parametric_function_api", scope)
    inner = names[0] if len(names) == 1 else ""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Calls the function in its parameter scope."""
        if len(args) <= last:
            name = kwargs.pop("name", None)
        elif len(args) == last + 1 and "name" not in kwargs:
            *args, name = args  # type: ignore[assignment]
        else:
            raise CallError(
                f"{function.__name__}: expected at most {last + 1} arguments, got {len(args) + len(kwargs)}"
            )
        if name is not None and not isinstance(name, str):
            raise CallError(f"{function.__name__}: expected `name` to be a str or None, got {name!r}")
        if again is not None:
            # A scope with a slash in its name is not found here.
            known: Any = place()[0] if name is None else place()[0].get(name)
            if type(known) is dict and type(known := known.get(inner)) is dict:
                try:
                    made = again(known, *args, **kwargs)
                except TypeError:  # The call below raises it with the name of the function.
                    made = None
                if made is not None:
                    return made
        path = names if name is None else split("parameter_scope", name) + names
        try:
            return call_within(path, function, args, kwargs)
        except TypeError as error:
            unknown = next((key for key in kwargs if key not in signature.parameters), None)
            if unknown is None:
                raise
            nearest = question(unknown, signature.parameters)
            arguments = ", ".join(signature.parameters)
            text = f"{function.__name__}: expected ({arguments}), got an argument '{unknown}'{nearest}"
            raise CallError(text) from error

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__doc__ = _document(function, scope, param_desc)
    return cast("F", call)


def _with_name(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function with `name=None` as its last argument."""
    signature = inspect.signature(function)
    if "fix_parameters" not in signature.parameters:
        raise CallError(
            f"parametric_function_api: expected `{function.__name__}` to take `fix_parameters`, got {signature}"
        )
    arguments = list(signature.parameters.values())
    if arguments[-1].name == "name":
        del arguments[-1]
    if any(a.name == "name" or a.kind is not a.POSITIONAL_OR_KEYWORD for a in arguments):
        raise CallError(
            f"parametric_function_api: expected `{function.__name__}` to take plain arguments, got {signature}"
        )
    name = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="str | None")
    return signature.replace(parameters=[*arguments, name])


def _document(function: Callable[..., Any], scope: str, described: Sequence[ParameterDescription]) -> str:
    """The docstring of a function with the list of its parameters appended."""
    text = inspect.cleandoc(function.__doc__ or f"{function.__name__}.")
    rows = [
        f"    {scope}/{name}: {meaning.rstrip('.')}, shape {shape}{'' if need_grad else ', needs no gradient'}."
        for name, meaning, shape, need_grad in described
    ]
    if rows:
        text += "\n\nParameters:\n" + "\n".join(rows)
    return f"{text}\n\nWith `name`, all of these are in a scope of that name: `name/{scope}`.\n"
