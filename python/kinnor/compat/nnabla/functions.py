"""Functions with NNabla's check: an input that is not a variable is an AssertionError."""

from __future__ import annotations

import functools
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kinnor import _core
from kinnor import functions as ours
from kinnor._core import CallError, NdArray, Variable
from kinnor.context import get_current_context

from ._composite import Einsum

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinnor.functions import *  # noqa: F403


def asserting(function: Callable[..., Any], n_inputs: int | None) -> Callable[..., Any]:
    """Wrap a function to assert that its first `n_inputs` arguments, or all of them, are variables or arrays."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Call the function. An error about its inputs becomes an AssertionError."""
        try:
            return function(*args, **kwargs)
        except CallError as error:
            if all(isinstance(x, (Variable, NdArray)) for x in args[:n_inputs]):
                raise
            raise AssertionError(str(error)) from error

    return call


def function_api(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function so that its first argument, `ctx`, is the current context.

    Args:
        func: A function of `ctx` and further arguments.

    Returns:
        The function without the argument `ctx`: it passes `get_current_context()`. Its attribute
        `__function_api_base__` is `func`.

    Raises:
        TypeError: If the first argument of `func` is not `ctx`.
    """
    signature = inspect.signature(func)
    if next(iter(signature.parameters), None) != "ctx":
        raise TypeError(f"function_api: expected `{func.__name__}` to take `ctx` first, got {signature}")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Call the function with the current context."""
        return func(get_current_context(), *args, **kwargs)

    without = signature.replace(parameters=[*signature.parameters.values()][1:])
    call.__dict__.update(__signature__=without, __function_api_base__=func)
    return call


@functools.wraps(ours.fused_convolution)
def _fused_convolution(*args: Any, **kwargs: Any) -> Any:
    """Kinnor's `fused_convolution`. Running statistics may be outputs of other functions, which NNabla overwrites."""
    given = inspect.signature(ours.fused_convolution).bind(*args, **kwargs).arguments
    given["nonlinearity"] = given.get("nonlinearity", "relu") or "identity"
    return _core.functions.fused_convolution(**given)


@functools.wraps(ours.einsum)
def _einsum(*x: Any, equation: str = "") -> Any:
    """Kinnor's `einsum` as one node of the graph."""
    if x and all(isinstance(each, Variable) for each in x):
        return Einsum(None, equation)(*x)
    return ours.einsum(*x, equation=equation)


_of_nnabla = {"fused_convolution": _fused_convolution}
globals().update({name: getattr(ours, name) for name in ours.__all__})
for _name, _type_name, _inputs, _arguments, _doc in _core.declarations():
    _variadic = any(kind == "list" for _, kind in _inputs)
    if hasattr(ours, _name):
        _function = _of_nnabla.get(_name, getattr(ours, _name))
        globals()[_name] = asserting(_function, None if _variadic else len(_inputs))
globals()["einsum"] = asserting(_einsum, None)

__all__ = list(ours.__all__)

_replaced = {name: (globals()[name], getattr(ours, name)) for name in __all__}


class Functions(ModuleType):
    """The class of this module: a function that a program replaces here is replaced in parametric functions, too."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Replaces a function here and in `kinnor.functions`. Assigning the original restores both."""
        super().__setattr__(name, value)
        if name in _replaced:
            here, there = _replaced[name]
            setattr(ours, name, there if value is here else value)


sys.modules[__name__].__class__ = Functions
