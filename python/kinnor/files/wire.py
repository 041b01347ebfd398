"""Protobuf's wire format, as far as NNabla's files need it.

Knows fields, varints, maps and the arrays that NNabla writes; knows no messages. Messages are written as lists of
pieces and read as views of the whole, so that elements are not copied from one level to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    Buffer: TypeAlias = bytes | memoryview
    Pieces: TypeAlias = list[Buffer]

__all__ = ["array", "array_fields", "entries", "entry", "field", "fields", "messages", "text", "varint", "whole"]

# Fields of messages that hold an array, of its shape, and of the entries of maps.
_SHAPE, _DATA = 20, 100
_DIM = 1
_KEY, _VALUE = 1, 2

_AXES = 64
_LONGEST_SHAPE = 10 * _AXES
"""How many axes NumPy knows, and the bytes of their lengths at most."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def array_fields(values: NDArray[Any]) -> Pieces:
    """The fields of an array, in single precision."""
    dims = b"".join(varint(n) for n in values.shape)
    data = np.ascontiguousarray(values, "<f4").reshape(-1).view(np.uint8).data
    return [*field(_SHAPE, field(_DIM, [dims]) if dims else []), *field(_DATA, [data])]


def whole(at: int, value: int) -> bytes:
    """A field that is a whole number."""
    return varint(at << 3 | _VARINT) + varint(value)


def array(message: Buffer) -> NDArray[Any]:
    """The array of a message, in single precision."""
    shape: list[int] = []
    data: list[Buffer] = []
    for at, value in fields(message):
        if at == _DATA and not isinstance(value, int):
            data.append(value)
        elif at == _SHAPE and not isinstance(value, int):
            shape += _dims(value)
    # One piece, as everybody writes it, need not be put together.
    elements = data[0] if len(data) == 1 else b"".join(data)
    if len(elements) % 4:
        raise ValueError(f"expected numbers of 4 bytes, got {len(elements)} bytes")
    return np.frombuffer(elements, "<f4").astype(np.float32).reshape(shape)


def _dims(message: Buffer) -> list[int]:
    found: list[int] = []
    for number, value in fields(message):
        if number != _DIM:
            continue
        if isinstance(value, int):
            found.append(value)
        elif len(value) > _LONGEST_SHAPE:
            raise ValueError(f"expected at most {_AXES} axes, got {len(value)} bytes of their lengths")
        else:
            found += _varints(value)
        if len(found) > _AXES:
            raise ValueError(f"expected at most {_AXES} axes, got more")
    return found


def varint(n: int) -> bytes:
    """A whole number in as many bytes as it needs."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, content: Sequence[Buffer]) -> Pieces:
    """A field of bytes."""
    return [varint(number << 3 | _BYTES) + varint(sum(map(len, content))), *content]


def entry(key: str, value: Sequence[Buffer]) -> Pieces:
    """An entry of a map."""
    return [*field(_KEY, [key.encode()]), *field(_VALUE, value)]


def entries(message: Buffer, number: int) -> Iterator[tuple[str, Buffer]]:
    """The entries of a map."""
    for pair in messages(message, number):
        key: Buffer = b""
        value: Buffer = b""
        for at, content in fields(pair):
            if not isinstance(content, int):
                key, value = (content, value) if at == _KEY else (key, content) if at == _VALUE else (key, value)
        yield text([key]), value


def text(pieces: Iterable[Buffer]) -> str:
    """The text that pieces are in UTF-8."""
    return b"".join(pieces).decode()


def messages(message: Buffer, number: int) -> Iterator[Buffer]:
    """The contents of the fields of a number."""
    return (value for at, value in fields(message) if at == number and not isinstance(value, int))


def fields(message: Buffer) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message; bytes are views of it."""
    message = memoryview(message)
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


def _varints(content: Buffer) -> list[int]:
    at, found = 0, []
    while at < len(content):
        value, at = _read_varint(content, at)
        found.append(value)
    return found


def _read_varint(content: Buffer, at: int) -> tuple[int, int]:
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
