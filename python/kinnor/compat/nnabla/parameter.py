"""Parameters as NNabla has them: with `no_grad`, and assertions about arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import ParameterError, no_grad
from kinnor import parameter as ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import Variable

globals().update({name: getattr(ours, name) for name in ours.__all__})

__all__ = [*ours.__all__, "no_grad", "set_parameter_from_proto"]


def get_parameter_or_create(
    name: str,
    shape: Sequence[int] | None = None,
    initializer: Any = None,
    need_grad: bool = True,
    as_need_grad: bool | None = None,
) -> Variable:
    """The parameter of a name in the current scope, made if it is not there.

    Args:
        name: Its name; slashes make scopes.
        shape: Its shape, if it is to be made.
        initializer: What gives it its values: an initializer or an array.
        need_grad: Whether it is trained.
        as_need_grad: Whether the variable that is returned needs a gradient, as `need_grad` by default.

    Returns:
        The parameter.

    Raises:
        AssertionError: If it is to be made and neither shape nor array says how large.
        ValueError: If it has another shape.
    """
    if shape is None and initializer is None:
        assert ours.get_parameter(name) is not None, f"get_parameter_or_create: expected a shape for '{name}', got none"
    found: Variable = ours.get_parameter_or_create(name, shape, initializer, need_grad, as_need_grad)
    return found


def set_parameter_from_proto(proto: Any) -> None:
    """Put the parameters of a message into the current scope, all or none.

    Args:
        proto: `NNablaProtoBuf` of `nnabla.utils.nnabla_pb2`.

    Raises:
        ParameterError: If one has no name, values that do not fit its shape, or another shape than the parameter of
            that name which is there.
        ImportError: If protobuf is not installed.
    """
    from kinnor.files import parameter_file, parameter_protobuf, schema  # Not on import, which it would make longer.

    op = "set_parameter_from_proto"
    message = schema.messages().NNablaProtoBuf()
    message.parameter.extend(proto.parameter)
    try:
        found = parameter_protobuf.decode(message.SerializeToString())
    except ValueError as error:
        raise ParameterError(f"{op}: {error}") from error
    for name, values, _ in found:
        parameter_file.check_shape(op, name, values)
    ours.put([parameter_file.Entry(*parameter) for parameter in found], op)
