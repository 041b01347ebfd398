"""Solver states as NNabla's `Optimizer` message, in protobuf's wire format.

Knows the few fields that hold states; passes over all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    State = tuple[str, int, dict[str, NDArray[Any]]]

__all__ = ["decode", "encode", "pieces"]

# Fields of Optimizer, Solver and SolverState.
_SOLVER = 30
_STATES = 40
_T, _ARRAYS = 1, 2


def encode(states: Iterable[State]) -> bytes:
    """Write states.

    Args:
        states: Name of the parameter, number of updates, and arrays by name.

    Returns:
        The bytes of the message; arrays are in single precision.
    """
    return b"".join(pieces(states))


def pieces(states: Iterable[State]) -> list[bytes | memoryview]:
    """What `encode` puts together, without copies of values that are in single precision already."""
    entries: list[bytes | memoryview] = []
    for key, t, arrays in states:
        state: list[bytes | memoryview] = [wire.whole(_T, t)]
        for name, array in arrays.items():
            state += wire.field(_ARRAYS, wire.entry(name, wire.array_fields(array)))
        entries += wire.field(_STATES, wire.entry(key, state))
    return wire.field(_SOLVER, entries)


def decode(message: bytes) -> list[State]:
    """Read states.

    Args:
        message: The bytes of the message.

    Returns:
        Name of the parameter, number of updates, and arrays by name.

    Raises:
        ValueError: If the bytes are no such message.
    """
    states = []
    for solver in wire.messages(message, _SOLVER):
        for key, state in wire.entries(solver, _STATES):
            t = [value for number, value in wire.fields(state) if number == _T and isinstance(value, int)]
            arrays = {name: wire.array(parameter) for name, parameter in wire.entries(state, _ARRAYS)}
            states.append((key, min(t[-1], 2**32 - 1) if t else 0, arrays))
    return states
