"""Parameters with NNabla's behaviour: `no_grad`, and assertions about arguments."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from kinnor import ParameterError, autodiff
from kinnor import parameter as ours
from kinnor._suggest import absence
from kinnor.logger import logger
from kinnor.parameter import tree as parameter_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import Variable
    from kinnor.files.parameter_file import PathOrFile

FORMATS = (".safetensors", ".h5", ".protobuf", ".nnp", ".nntxt", ".prototxt")
"""Extensions of files that parameters can be read from."""

globals().update({name: getattr(ours, name) for name in ours.__all__})

__all__ = [*ours.__all__, "set_parameter_from_proto"]


def get_parameter_or_create(
    name: str,
    shape: Sequence[int] | None = None,
    initializer: Any = None,
    need_grad: bool = True,
    as_need_grad: bool | None = None,
) -> Variable:
    """The parameter of a name in the current scope. It is created if it does not exist.

    Args:
        name: Name; slashes separate scopes.
        shape: Shape of a new parameter.
        initializer: Initial values of a new parameter: an initializer or an array.
        need_grad: Whether a new parameter needs a gradient.
        as_need_grad: Whether the returned variable needs a gradient; `need_grad` by default.

    Returns:
        The parameter.

    Raises:
        AssertionError: If the parameter is new and neither `shape` nor an array gives its shape.
        ValueError: If the existing parameter has another shape.
    """
    if shape is None and initializer is None:
        assert ours.get_parameter(name) is not None, f"get_parameter_or_create: expected a shape for '{name}', got none"
    found: Variable = ours.get_parameter_or_create(name, shape, initializer, need_grad, as_need_grad)
    return found


def __getattr__(name: str) -> Any:
    """Module variables of NNabla's that change: computed on each access."""
    if name == "current_no_grad":
        return not autodiff.is_grad_enabled()
    if name == "current_scope":
        return parameter_tree.here()
    if name == "root_scope":
        return parameter_tree.root
    raise AttributeError(absence(f"nnabla.parameter.{name}", __all__))


def load_parameters(
    path: PathOrFile, proto: Any = None, needs_proto: bool = False, extension: str | None = ".nntxt"
) -> Any:
    """Load parameters into the current scope. A path with an unknown ending is skipped with a warning.

    Args:
        path: Path, or a file open for reading bytes.
        proto: A message to which the parameters are added as well.
        needs_proto: Whether to create such a message.
        extension: Format of a file that is open.

    Returns:
        `proto`, or the new message, or None.

    Raises:
        ParameterError: If the file is malformed, or if a shape differs.
        OSError: If the file cannot be read.
    """
    ending = PurePath(path).suffix if isinstance(path, (str, os.PathLike)) else extension
    if ending and ending not in FORMATS:
        logger.warning(f"{path} is omitted.")
        return proto
    found = ours.load_parameters(path, proto, needs_proto, extension, strict=False)
    return None if isinstance(found, ours.Loaded) else found


def set_parameter_from_proto(proto: Any) -> None:
    """Copy the parameters of a message to the current scope, all or none.

    Args:
        proto: `NNablaProtoBuf` of `nnabla.utils.nnabla_pb2`.

    Raises:
        ParameterError: If a parameter has no name, has values that do not match its shape, or has another shape than
            the existing parameter of that name.
        ImportError: If protobuf is not installed.
    """
    from kinnor.files import (
        parameter_file,
        parameter_protobuf,
        schema,
    )  # Imported late, to keep the import of Kinnor short.

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
