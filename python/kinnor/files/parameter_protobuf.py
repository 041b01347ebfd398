"""Parameters as NNabla's `NNablaProtoBuf` message.

Knows the few fields that hold parameters; passes over all others, such as networks.
"""

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
    """Write parameters.

    Args:
        parameters: Name, values and whether it is trained, in order.

    Returns:
        The bytes of the message; values are in single precision.
    """
    return b"".join(pieces(parameters))


def pieces(parameters: Iterable[Parameter]) -> Iterator[bytes]:
    """What `encode` puts together: a message that is cut between its fields, each for one parameter."""
    for name, values, need_grad in parameters:
        whole = schema.arrays().NNablaProtoBuf()
        parameter = whole.parameter.add(variable_name=name, need_grad=need_grad)
        schema.fill_array(parameter, values)
        yield whole.SerializeToString()


def decode(message: bytes) -> list[Parameter]:
    """Read parameters.

    Args:
        message: The bytes of the message.

    Returns:
        Name, values and whether it is trained, in order. The values may not be written into.

    Raises:
        ValueError: If the bytes are no such message.
    """
    return parameters(parse(schema.arrays().NNablaProtoBuf, message))


def parse(kind: Any, content: bytes) -> Any:
    """Read a message of one of the classes of `schema`.

    Args:
        kind: The class.
        content: The bytes of the message.

    Raises:
        ValueError: If the bytes are no such message.
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
        ValueError: If one has no name, or values that do not fit its shape.
    """
    found = []
    for parameter in each(message.parameter, "load parameters"):
        if not parameter.variable_name:
            raise ValueError("expected a parameter with a name, got one without")
        found.append((parameter.variable_name, schema.array(parameter), parameter.need_grad))
    return found
