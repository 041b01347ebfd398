"""Values of a model that depend on its constants only. They are computed once for the graphs of all shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .containers import Absent, Items, Maps, Words
from .values import Value, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ..._core import Variable
    from .building import Prepared

__all__ = ["HeldValue", "SharedValues"]

_LARGE = 1 << 16
"""Constants of floats from this size in bytes on are held as variables only, not as arrays, too."""

_RANDOM = frozenset(
    [
        *("Bernoulli", "Dropout", "Multinomial"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    ]
)
"""Operators whose outputs differ between calls."""


class SharedValues:
    """Outputs of nodes whose inputs are constants of the model, by name.

    Args:
        nodes: The nodes of the model.
        constants: The initializers by name. Parameters are among them; they are no constants.

    Attributes:
        values: The outputs by name.
        nodes: Indices of the nodes.
    """

    def __init__(self, nodes: Iterable[Prepared], constants: Mapping[str, Value]) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: set[int] = set()
        self._constants = {name: value for name, value in constants.items() if value.known}
        self._fitting = [not node.has_graphs and node.operator not in _RANDOM for node in nodes]

    def hold(self, at: int, name: str, value: Value) -> None:
        """Takes the output of a node without inputs.

        Args:
            at: Index of the node.
            name: The output.
            value: Its value, a constant tensor of numbers.
        """
        self.values[name] = _without_array(value)
        self.nodes.add(at)

    def note(self, at: int, node: Prepared, values: dict[str, Value | None]) -> None:
        """Takes the outputs of a node if they depend on constants of the model only.

        Args:
            at: Index of the node.
            node: The node.
            values: Values by name.
        """
        if not self._fitting[at]:
            return
        for name in node.inputs:
            if name and name not in self.values and name not in self._constants:
                self._fitting[at] = False
                return
        made = {name: values.get(name) for name in node.outputs if name}
        if not all(value is not None and _is_held(value) for value in made.values()):
            return
        for name, value in made.items():
            values[name] = self.values[name] = _without_array(value)  # type: ignore[arg-type]
        self.nodes.add(at)

    def variables(self) -> list[Variable]:
        """The variables of the constants, as far as graphs read them."""
        held = [*self._constants.values(), *self.values.values()]
        return [value._variable for value in held if value._variable is not None]


def _is_held(value: Value) -> bool:
    """True if a value is a constant tensor of numbers."""
    return value.known and not isinstance(value, (Absent, Items, Maps, Words))


class HeldValue(Value):
    """A constant that is held as a variable.

    Args:
        value: The constant.
    """

    def __init__(self, value: Value) -> None:
        super().__init__(value.variable, value.dtype)

    @property
    def array(self) -> NDArray[Any]:
        """A copy of the elements."""
        return cast(self.variable.d, self.dtype)

    @property
    def is_computed(self) -> bool:
        """False: it is a constant."""
        return False

    @property
    def known(self) -> bool:
        """True: it is a constant."""
        return True


def _without_array(value: Value) -> Value:
    """A constant without its array, if that is large and a variable holds the same numbers."""
    is_large = value.dtype.kind == "f" and value.dtype.itemsize <= 4 and value.n_bytes >= _LARGE
    return HeldValue(value) if is_large else value
