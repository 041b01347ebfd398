"""Parameters as NNabla's `NNablaProtoBuf` message. Other fields of the message, such as networks, are ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import schema
from .progress import each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Parameter = tuple[str, NDArray[Any], bool]

__all__ = ["decode", "encode", "parameters", "parse", "pieces"]


def encode(parameters: Iterable[Parameter]) -> bytes:
    """Encodes parameters as a message.

    Args:
        parameters: Name, values and `need_grad` of each parameter, in order.

    Returns:
        The bytes of the message; values are in single precision.
    """
    return b"".join(pieces(parameters))


def pieces(parameters: Iterable[Parameter]) -> Iterator[bytes]:
    """Encodes parameters as pieces, one for each parameter. Concatenated, they are the message."""
    for name, values, need_grad in parameters:
        whole = schema.arrays().NNablaProtoBuf()
        parameter = whole.parameter.add(variable_name=name, need_grad=need_grad)
        schema.fill_array(parameter, values)
        yield whole.SerializeToString()


def decode(message: bytes) -> list[Parameter]:
    """Decodes parameters from a message.

    Args:
        message: The bytes of the message.

    Returns:
        Name, values and `need_grad` of each parameter, in order. The values are read-only.

    Raises:
        ValueError: If the message is malformed.
    """
    return parameters(parse(schema.arrays().NNablaProtoBuf, message))


def parse(kind: Any, content: bytes) -> Any:
    """Parses a message of a class of `schema`.

    Args:
        kind: The class.
        content: The bytes of the message.

    Raises:
        ValueError: If the message is malformed.
    """
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(content)
    except (DecodeError, UnicodeDecodeError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def parameters(message: Any) -> list[Parameter]:
    """The parameters in an `NNablaProtoBuf` of `schema.arrays`.

    Args:
        message: The message.

    Raises:
        ValueError: If a parameter has no name, or values that do not fit its shape.
    """
    found = []
    for parameter in each(message.parameter, "load parameters"):
        if not parameter.variable_name:
            raise ValueError("expected a parameter with a name, got one without")
        found.append((parameter.variable_name, schema.array(parameter), parameter.need_grad))
    return found
