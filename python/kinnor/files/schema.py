"""Message classes of NNabla's files, generated from `nnabla.binpb` by the package `protobuf`.

Two sets of classes read and write the same bytes. In `messages` arrays are repeated numbers, as in NNabla. In `arrays`
they are bytes, which is much faster for large arrays, and maps are lists of entries.
"""

from __future__ import annotations

import copyreg
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import ParameterError
from .packages import needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["array", "arrays", "fill_array", "messages"]

_DESCRIPTION = Path(__file__).with_name("nnabla.binpb")
"""The compiled description of NNabla's messages."""
_AXES = 64
"""NumPy's limit on axes."""


@cache
def messages() -> SimpleNamespace:
    """Classes of messages by name, with arrays as numbers.

    Raises:
        ImportError: If `protobuf` is not installed.
    """
    return _classes(as_bytes=False)


@cache
def arrays() -> SimpleNamespace:
    """Classes of messages by name, with the field `data` of arrays as bytes."""
    return _classes(as_bytes=True)


def _classes(as_bytes: bool) -> SimpleNamespace:
    """Generates the message classes by name."""
    needed("files of NNabla", "google.protobuf", ".nnp, .nntxt, .prototxt and .protobuf files", "nnp")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTION.read_bytes()).file[0]
    if as_bytes:
        for message in described.message_type:
            for field in message.field:
                if message.name in ("Parameter", "SolverStateParameter") and field.name == "data":
                    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            for entry in message.nested_type:
                entry.ClearField("options")  # turns a map into a list of entries, which keeps their order
    pool = descriptor_pool.DescriptorPool()  # a separate pool, as NNabla may be loaded in the same process
    pool.AddSerializedFile(described.SerializeToString())
    made = {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(message.name))
        for message in described.message_type
    }
    for name, kind in made.items():
        copyreg.pickle(kind, partial(_reduced, as_bytes, name))
    return SimpleNamespace(**made)


def _reduced(as_bytes: bool, name: str, message: Any) -> tuple[Any, ...]:
    """A message in the form that `pickle` writes: the classes are made at run time, so that no module has them."""
    return _unpickled, (as_bytes, name, message.SerializeToString())


def _unpickled(as_bytes: bool, name: str, content: bytes) -> Any:
    """The message that `_reduced` described."""
    return getattr(arrays() if as_bytes else messages(), name).FromString(content)


def array(message: Any) -> NDArray[Any]:
    """The array of a message of `arrays`, in single precision.

    Args:
        message: A `Parameter` or `SolverStateParameter`.

    Raises:
        ValueError: If its shape does not fit, or has more than 64 axes.
    """
    shape = message.shape.dim
    if len(shape) > _AXES:
        raise ValueError(f"expected at most {_AXES} axes, got {len(shape)}")
    # The usual single piece is used without a copy.
    pieces: Sequence[bytes] = message.data
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(content) % 4:
        raise ValueError(f"expected numbers of 4 bytes, got {len(content)} bytes")
    if any(length < 0 for length in shape):
        raise ValueError(f"expected lengths of zero or more, got {list(shape)}")
    return np.frombuffer(content, "<f4").astype(np.float32, copy=False).reshape(tuple(shape))


def fill_array(message: Any, values: NDArray[Any]) -> None:
    """Stores an array in a message of `arrays`, in single precision.

    Args:
        message: A `Parameter` or `SolverStateParameter`.
        values: The array.

    Raises:
        ParameterError: If a value is beyond the range of single precision.
    """
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, "<f4")
    if values.dtype.kind == "f" and values.dtype.itemsize > stored.itemsize:
        is_lost = np.isinf(stored) & np.isfinite(values)
        if is_lost.any():
            raise ParameterError(
                f"save: expected values of single precision for NNabla's formats, got {values[is_lost][0]}; "
                ".safetensors and .h5 keep double precision"
            )
    message.shape.SetInParent()
    message.shape.dim.extend(values.shape)
    message.data.append(stored.tobytes())
