"""Gradients of functions as graphs, by the name of the function's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import Variable, _core
from kinnor import functions as F
from kinnor.function import RULES

from ._dropout_workaround import dropout_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["register", "registry", "show_registry"]


def rule_of(name: str, type_name: str, arguments: list[tuple[str, str]]) -> Callable[..., Any]:
    """The rule of one operation as NNabla calls it: a variable for one input, a tuple of them for several."""

    def backward(
        grad_inputs: Sequence[Variable],
        inputs: Sequence[Variable | None],
        input_shapes: Sequence[tuple[int, ...]],
        outputs: Sequence[Variable | None],
        output_shapes: Sequence[tuple[int, ...]],
        *values: Any,
        **args: Any,
    ) -> Any:
        args.update(zip((info for _, info in arguments), values, strict=False))
        read = [x for x in inputs if x is not None]
        if len(read) < len(inputs):
            # The function's own inputs, or others of the shape, take the places of those that are not read.
            made_by = next((y.parent for y in outputs if y is not None and y.parent is not None), None)
            others = made_by.inputs if made_by is not None else [Variable(s, need_grad=True) for s in input_shapes]
            read = [other if x is None else x for x, other in zip(inputs, others, strict=True)]
        if any(y is None or y.parent is None for y in outputs):
            named = {ours: args[info] for ours, info in arguments if info in args}
            made = getattr(F, name)(*read, **named)
            outputs = made if isinstance(made, tuple) else (made,)
        found = _core.grad_graph([y for y in outputs if y is not None], read, list(grad_inputs))
        return found[0] if len(found) == 1 else tuple(found)

    backward.__name__ = backward.__qualname__ = f"{name}_backward"
    backward.__doc__ = f"Gradients of the inputs of {type_name}."
    return backward


class Registry(dict[str, "Callable[..., Any]"]):
    """The rules by type name. An operation that no function makes, and only a gradient is made of, has one as well."""

    def __missing__(self, type_name: str) -> Callable[..., Any]:
        return rule_of(type_name, type_name, [])


registry = Registry(
    (type_name, rule_of(name, type_name, [(ours, info) for ours, info, *_ in arguments]))
    for name, type_name, _, arguments, _ in _core.declarations()
)
"""The rules by type name. `nn.grad` uses the operations' own, and for a PythonFunction the one under its
name."""
registry["Dropout"] = dropout_backward


def register(name: str, backward_func: Callable[..., Any]) -> None:
    """Add a rule.

    Args:
        name: The type name.
        backward_func: Called with the gradients of the outputs, inputs, their shapes, outputs, their shapes, and the
            arguments by name.
    """
    registry[name] = backward_func
    RULES[name] = backward_func


def show_registry() -> None:
    """Print the rules by name."""
    for name, rule in registry.items():
        print(f"{name}: {rule.__name__}")
