"""Parameters as NNabla's `NNablaProtoBuf` message, in protobuf's wire format.

Knows the few fields that hold parameters; passes over all others, such as networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Parameter = tuple[str, NDArray[Any], bool]

__all__ = ["decode", "encode", "pieces"]

# Fields of NNablaProtoBuf and Parameter.
_PARAMETER = 200
_NAME, _NEED_GRAD = 1, 101


def encode(parameters: Iterable[Parameter]) -> bytes:
    """Write parameters.

    Args:
        parameters: Name, values and whether it is trained, in order.

    Returns:
        The bytes of the message; values are in single precision.
    """
    return b"".join(pieces(parameters))


def pieces(parameters: Iterable[Parameter]) -> Iterator[bytes | memoryview]:
    """What `encode` puts together, without copies of values that are in single precision already."""
    for name, values, need_grad in parameters:
        flag = [wire.whole(_NEED_GRAD, 1)] if need_grad else []
        content = [*wire.field(_NAME, [name.encode()]), *wire.array_fields(values), *flag]
        yield from wire.field(_PARAMETER, content)


def decode(message: bytes) -> list[Parameter]:
    """Read parameters.

    Args:
        message: The bytes of the message.

    Returns:
        Name, values and whether it is trained, in order.

    Raises:
        ValueError: If the bytes are no such message.
    """
    found = []
    for parameter in wire.messages(message, _PARAMETER):
        name = wire.text(wire.messages(parameter, _NAME))
        need_grad = [value for number, value in wire.fields(parameter) if number == _NEED_GRAD]
        if not name:
            raise ValueError("expected a parameter with a name, got one without")
        found.append((name, wire.array(parameter), bool(need_grad[-1]) if need_grad else False))
    return found
