"""A node whose output shapes depend on values, such as `NonZero`. It is computed separately in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..read.values import Value, cast, check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..read.building import Builder
    from ..read.values import Node

__all__ = ["RenewedValue", "RepeatedNode", "numbers"]


class RenewedValue(Value):
    """A constant with the value that a graph computed last.

    Args:
        computed: A value of that graph.
    """

    def __init__(self, computed: Value) -> None:
        super().__init__(computed.variable.get_unlinked_variable(need_grad=False), computed.dtype)

    @property
    def array(self) -> NDArray[Any]:
        """The current elements.

        Raises:
            OnnxError: If an integer is too large for float64.
        """
        return numbers(self)

    @property
    def is_computed(self) -> bool:
        """False: it is a constant of the node that reads it, which is built after the graph has run."""
        return False

    @property
    def known(self) -> bool:
        """True: it counts as a constant."""
        return True


class RepeatedNode:
    """A node whose inputs are constants, including values that a graph before it has computed.

    Args:
        builder: The builder of the model.
        at: Index of the node.
        gives: The names of its outputs.
        takes: Its inputs by name.
        are_fixed: Whether parameters count as constants, because they never change.

    Attributes:
        known: The inputs as constants, by name.
    """

    __slots__ = ("_at", "_builder", "_gives", "_node", "known")

    def __init__(
        self, builder: Builder, at: int, gives: list[str], takes: Mapping[str, Value | None], are_fixed: bool
    ) -> None:
        self.known = dict(takes)
        self._builder, self._at, self._gives = builder, at, gives
        self._node: Node | None = None
        for name, value in takes.items():
            if value is None or value.known:
                continue
            if value.is_computed:
                self.known[name] = RenewedValue(value)
            elif are_fixed:
                self.known[name] = Value(value.static())

    def outputs(self) -> dict[str, Value | None]:
        """The outputs by name, for the current input values."""
        node = self._node
        if node is None:
            node = self._builder.node(self._at, self.known)
            self._node = node if node.run is None else None  # nodes with inner graphs are rebuilt in each call
        return {name: value for name, value in zip(self._gives, self._builder.again(node), strict=False) if name}


def numbers(value: Value) -> NDArray[Any]:
    """The elements of a computed value, in its ONNX element type.

    Args:
        value: The value.

    Raises:
        OnnxError: If an integer is too large for float64.
    """
    array = cast(value.variable.d, value.dtype)
    check_whole(array, "a value that decides on shapes", is_computed=True)
    return array
