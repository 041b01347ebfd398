"""`load`: reads a network from an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._core import Error
from ...files.atomic import steadily
from ..read import reading
from ..read.tensors import Folder
from ..read.values import OnnxError
from .network import Model

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load", "loaded"]


def load(path: str | os.PathLike[str] | bytes | Any, folder: str | os.PathLike[str] | None = None) -> Model:
    """Read a network from an ONNX file.

    Args:
        path: Path, the bytes of a file, or a `ModelProto`, which is not changed.
        folder: The folder that files of tensors must be in or below. By default the folder of the file.
            Bytes and messages have none.

    Returns:
        The model. It builds graphs when it is called.

    Raises:
        UnsupportedError: If operators are not supported. The error lists them with versions and nodes.
        OnnxError: If the file is malformed.
        OSError: If it cannot be read.
        CallError: If it is neither a path nor bytes nor a `ModelProto`.
        ImportError: If the package `onnx` is not installed.

    Example:
        >>> import tempfile
        >>> import kinnor as nn
        >>> x = nn.Variable((2, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     nn.onnx.save({"y": nn.functions.relu(x)}, f"{folder}/net.onnx", inputs={"x": x})
        ...     content = Path(f"{folder}/net.onnx").read_bytes()
        >>> model = nn.onnx.load(content)
        >>> model.input_info
        (NodeArg(name='x', type='tensor(float)', shape=['batch', 3]),)
    """
    return loaded(path, folder, lambda proto: proto)


def loaded(
    path: str | os.PathLike[str] | bytes | Any, folder: str | os.PathLike[str] | None, change: Callable[[Any], Any]
) -> Model:
    """Read a network from an ONNX file and change it before it is checked.

    Args:
        path: As of `load`.
        folder: As of `load`.
        change: Function from the `ModelProto` to the one to use.

    Returns:
        The model.

    Raises:
        UnsupportedError: As of `load`.
        OnnxError: As of `load`.
        OSError: As of `load`.
        CallError: As of `load`.
        ImportError: As of `load`.
    """
    where = None if folder is None else Path(folder)

    def read(path: Path) -> Model:
        """Reads and checks the model."""
        proto, tensors = reading.read(path)
        return Model(change(proto), where or Folder.of(path), tensors)

    source = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    try:
        return Model(change(reading.held(path)), where) if source is None else steadily("onnx.load", Path(source), read)
    except (Error, OSError, ImportError):
        raise
    except Exception as error:
        source = source or "memory"
        raise OnnxError(f"onnx.load: expected a well-formed model in {source}, got {error}") from error
