"""Solver states as NNabla's `Optimizer` message, in protobuf's wire format.

Knows the few fields that hold states; passes over all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    State = tuple[str, int, dict[str, NDArray[Any]]]

__all__ = ["decode", "encode"]

# Fields of Optimizer, Solver, map entries, SolverState, SolverStateParameter and Shape.
_SOLVER = 30
_STATES = 40
_KEY, _VALUE = 1, 2
_T, _ARRAYS = 1, 2
_SHAPE, _DATA = 20, 100
_DIM = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(states: Iterable[State]) -> bytes:
    """Write states.

    Args:
        states: Name of the parameter, number of updates, and arrays by name.

    Returns:
        The bytes of the message; arrays are in single precision.
    """
    entries = []
    for key, t, arrays in states:
        state = _varint(_T << 3 | _VARINT) + _varint(t)
        for name, array in arrays.items():
            dims = b"".join(_varint(n) for n in array.shape)
            data = np.ascontiguousarray(array, "<f4").tobytes()
            parameter = _field(_SHAPE, _field(_DIM, dims) if dims else b"") + _field(_DATA, data)
            state += _field(_ARRAYS, _entry(name, parameter))
        entries.append(_field(_STATES, _entry(key, state)))
    return _field(_SOLVER, b"".join(entries))


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
    for solver in _messages(message, _SOLVER):
        for key, state in _entries(solver, _STATES):
            t = [value for number, value in _fields(state) if number == _T and isinstance(value, int)]
            arrays = {name: _array(parameter) for name, parameter in _entries(state, _ARRAYS)}
            states.append((key, min(t[-1], 2**32 - 1) if t else 0, arrays))
    return states


def _array(message: bytes) -> NDArray[Any]:
    shape: list[int] = []
    for dims in _messages(message, _SHAPE):
        for number, value in _fields(dims):
            if number == _DIM:
                shape += [value] if isinstance(value, int) else _varints(value)
    data = b"".join(_messages(message, _DATA))
    if len(data) % 4:
        raise ValueError(f"expected numbers of 4 bytes, got {len(data)} bytes")
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _entry(key: str, value: bytes) -> bytes:
    return _field(_KEY, key.encode()) + _field(_VALUE, value)


def _entries(message: bytes, number: int) -> Iterator[tuple[str, bytes]]:
    """The entries of a map."""
    for entry in _messages(message, number):
        key, value = b"", b""
        for at, content in _fields(entry):
            if isinstance(content, bytes):
                key, value = (content, value) if at == _KEY else (key, content) if at == _VALUE else (key, value)
        yield key.decode(), value


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    return (value for at, value in _fields(message) if at == number and isinstance(value, bytes))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"expected a field of a known kind, got {kind}")
        if at + length > len(message):
            raise ValueError(f"expected {length} bytes of field {number}, got {len(message) - at}")
        yield number, message[at : at + length]
        at += length


def _varints(content: bytes) -> list[int]:
    at, found = 0, []
    while at < len(content):
        value, at = _read_varint(content, at)
        found.append(value)
    return found


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError("expected a whole number, got the end")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("expected a whole number of at most 64 bits")
