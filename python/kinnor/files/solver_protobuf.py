"""Solver states as NNabla's `Optimizer` message.

Knows the few fields that hold states; passes over all others.
"""

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
    """Write states.

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
    """What has the meaning of `encode`: a message that is cut between its fields, each for one parameter."""
    return (encode([state]) for state in found)


def fill(optimizer: Any, state: State) -> None:
    """Put one state into an `Optimizer` of `schema.arrays`.

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
    """Read states.

    Args:
        message: The bytes of the message.

    Returns:
        Name of the parameter, number of updates, and arrays by name. The arrays may not be written into.

    Raises:
        ValueError: If the bytes are no such message.
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
