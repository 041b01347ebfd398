"""Protobuf's wire format, as far as NNabla's files need it.

Knows fields, varints, maps and the arrays that NNabla writes; knows no messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["array", "array_fields", "entries", "entry", "field", "fields", "messages", "varint", "whole"]

# Fields of messages that hold an array, of its shape, and of the entries of maps.
_SHAPE, _DATA = 20, 100
_DIM = 1
_KEY, _VALUE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def array_fields(values: NDArray[Any]) -> bytes:
    """The fields of an array, in single precision."""
    dims = b"".join(varint(n) for n in values.shape)
    data = np.ascontiguousarray(values, "<f4").tobytes()
    return field(_SHAPE, field(_DIM, dims) if dims else b"") + field(_DATA, data)


def whole(at: int, value: int) -> bytes:
    """A field that is a whole number."""
    return varint(at << 3 | _VARINT) + varint(value)


def array(message: bytes) -> NDArray[Any]:
    """The array of a message, in single precision."""
    shape: list[int] = []
    for dims in messages(message, _SHAPE):
        for number, value in fields(dims):
            if number == _DIM:
                shape += [value] if isinstance(value, int) else _varints(value)
    data = b"".join(messages(message, _DATA))
    if len(data) % 4:
        raise ValueError(f"expected numbers of 4 bytes, got {len(data)} bytes")
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)


def varint(n: int) -> bytes:
    """A whole number in as many bytes as it needs."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def entry(key: str, value: bytes) -> bytes:
    """An entry of a map."""
    return field(_KEY, key.encode()) + field(_VALUE, value)


def entries(message: bytes, number: int) -> Iterator[tuple[str, bytes]]:
    """The entries of a map."""
    for pair in messages(message, number):
        key, value = b"", b""
        for at, content in fields(pair):
            if isinstance(content, bytes):
                key, value = (content, value) if at == _KEY else (key, content) if at == _VALUE else (key, value)
        yield key.decode(), value


def messages(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of the fields of a number."""
    return (value for at, value in fields(message) if at == number and isinstance(value, bytes))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
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
