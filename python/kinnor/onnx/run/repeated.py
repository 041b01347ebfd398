"""A node of a model that decides on shapes, computed by itself in each call.

Knows one node and values; knows no graphs that are kept.
"""

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
    """A constant that is, whenever it is looked at, what a graph computed last.

    Args:
        computed: The value of a variable of that graph.
    """

    def __init__(self, computed: Value) -> None:
        super().__init__(computed.variable.get_unlinked_variable(need_grad=False), computed.dtype)

    @property
    def array(self) -> NDArray[Any]:
        """Its numbers of now.

        Raises:
            OnnxError: If there are whole numbers that float32 rounds.
        """
        return numbers(self)

    @property
    def is_computed(self) -> bool:
        """Never: the node that takes it is computed after the graph."""
        return False

    @property
    def known(self) -> bool:
        """Always."""
        return True


class RepeatedNode:
    """A node on constants, some of which are what a graph before it computed.

    Args:
        builder: Builds it.
        at: Its number.
        gives: The names of its outputs.
        takes: What it takes, by name.
        are_fixed: Whether parameters are constants, too, as nobody changes them.

    Attributes:
        known: The constants by name.
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
        """What the node gives by name, for what was computed now."""
        node = self._node
        if node is None:
            node = self._builder.node(self._at, self.known)
            self._node = node if node.run is None else None  # graphs inside of it are built anew
        return {name: value for name, value in zip(self._gives, self._builder.again(node), strict=False) if name}


def numbers(value: Value) -> NDArray[Any]:
    """The numbers of a variable that was computed.

    Args:
        value: The variable's value.

    Raises:
        OnnxError: If there are whole numbers that float32 rounds.
    """
    array = cast(value.variable.d, value.dtype)
    check_whole(array, "a value that decides on shapes", is_computed=True)
    return array
