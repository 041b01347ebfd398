"""Solver states as NNabla's `Optimizer` message. Other fields of the message are ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import schema
from .parameter_protobuf import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    State = tuple[str, int, dict[str, NDArray[Any]]]

__all__ = ["decode", "encode", "fill", "pieces", "states"]


def encode(found: Iterable[State]) -> bytes:
    """Encodes states as a message.

    Args:
        found: Name of the parameter, number of updates, and arrays by name.

    Returns:
        The bytes of the message; arrays are in single precision.
    """
    optimizer = schema.arrays().Optimizer()
    optimizer.solver.SetInParent()
    for state in found:
        fill(optimizer, state)
    content: bytes = optimizer.SerializeToString()
    return content


def pieces(found: Iterable[State]) -> Iterator[bytes]:
    """Encodes states as pieces, one for each parameter. Concatenated, they are an equivalent message."""
    return (encode([state]) for state in found)


def fill(optimizer: Any, state: State) -> None:
    """Adds one state to an `Optimizer` of `schema.arrays`.

    Args:
        optimizer: The message.
        state: Name of the parameter, number of updates, and arrays by name.
    """
    name, t, arrays = state
    entry = optimizer.solver.states.add(key=name)
    entry.value.t = t
    for key, values in arrays.items():
        schema.fill_array(entry.value.state_parameter.add(key=key).value, values)


def decode(message: bytes) -> list[State]:
    """Decodes states from a message.

    Args:
        message: The bytes of the message.

    Returns:
        Name of the parameter, number of updates, and arrays by name. The arrays are read-only.

    Raises:
        ValueError: If the message is malformed.
    """
    return states(parse(schema.arrays().Optimizer, message))


def states(optimizer: Any) -> list[State]:
    """The states in an `Optimizer` of `schema.arrays`.

    Args:
        optimizer: The message.

    Raises:
        ValueError: If values do not fit their shape.
    """
    return [
        (entry.key, entry.value.t, {held.key: schema.array(held.value) for held in entry.value.state_parameter})
        for entry in optimizer.solver.states
    ]
