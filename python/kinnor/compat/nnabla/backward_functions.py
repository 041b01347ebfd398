"""The gradient rules of functions by type name. A rule builds the gradient as a graph."""

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
    """The gradient rule of an operation with NNabla's signature. It returns a variable for one input, else a tuple."""

    def backward(
        grad_inputs: Sequence[Variable],
        inputs: Sequence[Variable | None],
        input_shapes: Sequence[tuple[int, ...]],
        outputs: Sequence[Variable | None],
        output_shapes: Sequence[tuple[int, ...]],
        *values: Any,
        **args: Any,
    ) -> Any:
        """Build the gradients of the operation's inputs as graphs."""
        args.update(zip((info for _, info in arguments), values, strict=False))
        read = [x for x in inputs if x is not None]
        if len(read) < len(inputs):
            # Inputs that the rule does not read are None. The function's own inputs or new variables replace them.
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
    """Gradient rules by type name. Operations that occur only in gradients are found, too."""

    def __missing__(self, type_name: str) -> Callable[..., Any]:
        return rule_of(type_name, type_name, [])


registry = Registry(
    (type_name, rule_of(name, type_name, [(ours, info) for ours, info, *_ in arguments]))
    for name, type_name, _, arguments, _ in _core.declarations()
)
"""Gradient rules by type name. `nn.grad` reads only the rules of PythonFunctions from it: other operations have
built-in rules."""
registry["Dropout"] = dropout_backward


def register(name: str, backward_func: Callable[..., Any]) -> None:
    """Register a gradient rule.

    Args:
        name: The type name.
        backward_func: The rule. Its arguments are the output gradients, inputs, input shapes, outputs, output shapes,
            and the function's arguments by name.
    """
    registry[name] = backward_func
    RULES[name] = backward_func


def show_registry() -> None:
    """Print the rules by name."""
    for name, rule in registry.items():
        print(f"{name}: {rule.__name__}")
