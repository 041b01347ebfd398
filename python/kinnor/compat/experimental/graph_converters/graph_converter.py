"""Graph rewriting: rebuilds a graph function by function, with some functions replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import functions as F
from ...._core import CallError, Variable, declarations
from ....parameter import get_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Function

__all__ = ["FunctionModifier", "GraphConverter"]


class FunctionModifier:
    """Rewrites the functions of a graph. Subclasses define `modify`.

    The functions come in the order of a forward run. The modifier maps each old variable to its replacement.

    Attributes:
        outputs: The replacement of the last function's outputs.

        >>> import kinnor as nn, kinnor.functions as F
        >>> import kinnor.experimental.graph_converters as GC
        >>> class Softer(GC.FunctionModifier):
        ...     def modify(self, f, inputs):
        ...         if f.info.type_name == "ReLU":
        ...             return F.softplus(inputs[0])
        >>> y = F.relu(nn.Variable((2, 3)) * 2.0)
        >>> GC.GraphConverter([Softer()]).convert(y).parent.info.type_name
        'SoftPlus'
    """

    def __init__(self) -> None:
        self._made: dict[Variable, Variable] = {}
        self._given: dict[Function, list[Variable]] = {}
        self.outputs: list[Variable] = []

    def init_map_func_inputs(self, f: Function, inputs: Sequence[Variable]) -> None:
        """Set the inputs that a function has in the new graph; the other inputs stay.

        Args:
            f: The function.
            inputs: The first inputs, or all.
        """
        self._given[f] = list(inputs)

    def get_parameter_scope(self, v: Variable) -> str:
        """The scope that a parameter is registered in.

        Args:
            v: The parameter.

        Returns:
            The path of the scope; empty if the variable is not a parameter.
        """
        found = (key for key, parameter in get_parameters(grad_only=False).items() if parameter == v)
        return next(found, "").rpartition("/")[0]

    def __call__(self, f: Function) -> None:
        """Rewrite a function: call `modify` and record its outputs.

        Args:
            f: The function.

        Raises:
            TypeError: If `modify` returns something else than a variable, variables or None.
        """
        given = self._given.get(f, [])
        own = f.inputs[len(given) :]
        inputs = given + [self._made.get(v, v) for v in own]
        made = self.modify(f, inputs)
        made = self._modify_as_same(f, inputs) if made is None else made
        outputs = list(made) if isinstance(made, (list, tuple)) else [made]
        if not all(isinstance(y, Variable) for y in outputs):
            raise CallError(f"{type(self).__name__}.modify: expected a Variable or None, got {made!r}")
        self.outputs = outputs
        self._made.update(zip(f.outputs, outputs, strict=False))

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function.

        Args:
            f: The function of the graph.
            inputs: The replacements of its inputs.

        Returns:
            A variable, or None to copy the function with these inputs.
        """

    def _modify_as_same(self, f: Function, inputs: list[Variable]) -> Any:
        """Copy a function with other inputs."""
        return f(*inputs)

    def _call_function(self, type_name: str, inputs: Sequence[Variable], args: dict[str, Any]) -> Any:
        """Call a function by its type name, with arguments named as in `info.args`."""
        name, arguments = _functions()[type_name]
        named = {ours: args[info] for ours, info in arguments if info in args}
        return getattr(F, name)(*inputs, **named)

    def __finish__(self) -> None:
        """Forget the current graph; called after each graph."""

    def finish_up(self) -> None:
        """Reset the modifier for another graph."""
        self._made, self._given = {}, {}
        self.__finish__()


class GraphConverter:
    """Rebuilds a graph with modifiers, one after the other.

    Args:
        modifiers: The modifiers. Lists of modifiers are flattened.

        >>> import kinnor as nn, kinnor.functions as F
        >>> import kinnor.experimental.graph_converters as GC
        >>> x = nn.Variable((2, 3))
        >>> y = F.relu(F.dropout(x))
        >>> without = GC.GraphConverter([GC.RemoveFunctionModifier(["Dropout"])]).convert(y)
        >>> without.parent.inputs[0] == x
        True
    """

    def __init__(self, modifiers: Sequence[Any] = ()) -> None:
        self._modifiers = list(_flat(modifiers))

    def convert(self, o: Variable | Sequence[Variable]) -> Any:
        """Rebuild the graph of one output or of several.

        Args:
            o: The output, or a list or tuple of them.

        Returns:
            The new output, or a list of new outputs.
        """
        outputs = [o] if isinstance(o, Variable) else list(o)
        for modifier in self._modifiers:
            end = F.sink(*outputs)
            end.visit(modifier)
            outputs = modifier.outputs[0].parent.inputs
            modifier.finish_up()
        return outputs[0] if isinstance(o, Variable) else outputs


def _flat(modifiers: Any) -> Any:
    """Yields the modifiers in nested lists."""
    for modifier in modifiers:
        if isinstance(modifier, (list, tuple)):
            yield from _flat(modifier)
        else:
            yield modifier


def _functions() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """By type name: the Python function, and pairs of its argument names and the names in `info.args`."""
    if not _FUNCTIONS:
        for name, type_name, _, arguments, _ in declarations():
            _FUNCTIONS[type_name] = name, [(ours, info) for ours, info, *_ in arguments]
    return _FUNCTIONS


_FUNCTIONS: dict[str, tuple[str, list[tuple[str, str]]]] = {}
"""The name and the arguments of each function, by type name. Filled on first use."""
