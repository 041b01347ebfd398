"""Functions in a graph as objects, and `PythonFunction`, the base class of user-defined functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core import Function, FunctionInfo, PythonFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._core import Variable

__all__ = ["Function", "FunctionInfo", "PythonFunction"]

RULES: dict[str, Callable[..., Any]] = {}
"""Gradient rules of user-defined operations, by operation name. `kinnor.compat.nnabla` registers them."""


def gradient_by_name(
    function: PythonFunction,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    grad_outputs: Sequence[Variable],
    propagate_down: Sequence[bool],
) -> list[Variable | None]:
    """The default of `PythonFunction.gradient_impl`: calls the rule in `RULES` for the function's name.

    Rules get NNabla's arguments.

    Raises:
        NotImplementedError: If no rule has that name.
    """
    rule = RULES.get(function.name)
    if rule is None:
        raise NotImplementedError(
            f"grad of {function.name}: expected the class to define "
            "gradient_impl(inputs, outputs, grad_outputs, propagate_down), which makes its gradient of Variables"
        )
    shapes = [x.shape for x in inputs], [y.shape for y in outputs]
    found = rule(grad_outputs, inputs, shapes[0], outputs, shapes[1], **getattr(function, "args", {}))
    each = list(found) if isinstance(found, (list, tuple)) else [found]
    each += [None] * (len(inputs) - len(each))
    return [g if wanted else None for g, wanted in zip(each, propagate_down, strict=True)]
