"""Files of parameters: names, values, order and need_grad, as safetensors or as NNabla's HDF5 and protobuf files.

Knows formats; knows no scopes and no variables. A file comes from anywhere and is believed nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from . import _core, parameter_protobuf
from ._core import ParameterError
from .atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Entry", "PathOrFile", "load", "save"]

PathOrFile: TypeAlias = "str | os.PathLike[str] | IO[bytes]"

_LATER = (".nnp", ".nntxt", ".npz", ".onnx", ".prototxt")
_DEFLATE_LIMIT = 1032
"""No deflated file is smaller than its content by more."""


class Entry(NamedTuple):
    """One parameter of a file."""

    name: str
    values: NDArray[Any]
    need_grad: bool


def save(path: PathOrFile, entries: list[Entry], extension: str | None = None) -> None:
    """Write a file, whole or not at all.

    Args:
        path: Path, or a file open for writing bytes.
        entries: What to write, in order.
        extension: Format, if the path does not say it: `.safetensors`, `.h5` or `.protobuf`.

    Raises:
        ParameterError: If the format is unknown or cannot hold the values.
        OSError: If the file cannot be written.
    """
    write, _ = _format("save_parameters", path, extension)
    if isinstance(path, (str, os.PathLike)):
        with replacing(path) as temporary:
            write(temporary, entries)
        return
    with _scratch_file() as temporary:
        write(temporary, entries)
        with temporary.open("rb") as file:
            shutil.copyfileobj(file, path)


def load(path: PathOrFile, extension: str | None = None) -> list[Entry]:
    """Read a file.

    Args:
        path: Path, or a file open for reading bytes.
        extension: Format, if the path does not say it: `.safetensors`, `.h5` or `.protobuf`.

    Returns:
        Its entries, in the order in which they were saved.

    Raises:
        ParameterError: If the format is unknown or the file malformed.
        OSError: If the file cannot be read.
    """
    _, read = _format("load_parameters", path, extension)
    if isinstance(path, (str, os.PathLike)):
        with Path(path).open("rb"):  # For the usual error where there is no such file.
            return read(Path(path))
    with _scratch_file() as temporary:
        with temporary.open("wb") as file:
            shutil.copyfileobj(path, file)
        return read(temporary)


@contextmanager
def _scratch_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kinnor-") as folder:
        yield Path(folder, "parameters")


def _format(op: str, path: PathOrFile, extension: str | None) -> _Format:
    """The functions that write and read a format."""
    if isinstance(path, (str, os.PathLike)):
        extension = Path(path).suffix if Path(path).suffix in (*_FORMATS, *_LATER) else extension
        shown = f"{os.fspath(path)!r}"
    else:
        shown = f"a file object with extension={extension!r}"
    if extension in _LATER:
        raise NotImplementedError(f"{op}: expected {_known()}, got {shown}: {extension} is not supported yet")
    if extension not in _FORMATS:
        raise ParameterError(f"{op}: expected a name that ends in {_known()}, got {shown}")
    return _FORMATS[extension]


def _known() -> str:
    return " or ".join(filter(None, _FORMATS))


# --- safetensors: order and need_grad are a JSON object in the header's metadata.


def _write_safetensors(path: Path, entries: list[Entry]) -> None:
    need_grad = {entry.name: entry.need_grad for entry in entries}
    if "__metadata__" in need_grad:
        raise ParameterError("save_parameters: expected a name for .safetensors, got '__metadata__'")
    tensors = [
        (name, v.dtype.name, v.shape, np.ascontiguousarray(v).reshape(-1).view(np.uint8)) for name, v, _ in entries
    ]
    _core.save_safetensors(path, tensors, {"format": "kinnor", "need_grad": json.dumps(need_grad)})


def _read_safetensors(path: Path) -> list[Entry]:
    content = path.read_bytes()
    try:
        found, metadata = _core.read_safetensors(content)
        arrays = {name: _array(content, dtype, shape, start) for name, dtype, shape, start in found}
    except (TypeError, ValueError) as error:
        raise ParameterError(f"load_parameters: expected a safetensors file, got {path}: {error}") from error
    if "need_grad" not in metadata:
        return [Entry(name, values, _is_float(values)) for name, values in arrays.items()]
    try:
        need_grad = json.loads(metadata["need_grad"])
    except (ValueError, RecursionError):
        need_grad = None
    if not isinstance(need_grad, dict) or need_grad.keys() != arrays.keys():
        raise ParameterError(
            f"load_parameters: expected metadata `need_grad` with the names of the tensors, got another in {path}"
        )
    return [Entry(name, arrays[name], flag is True) for name, flag in need_grad.items()]


def _array(content: bytes, dtype: str, shape: Sequence[int], start: int) -> NDArray[Any]:
    """The values at a place of the file, without a copy where they are aligned."""
    if dtype == "bfloat16":
        _needed("load_parameters", "ml_dtypes", "values in bfloat16")  # NumPy knows the name afterwards.
    values = np.frombuffer(content, dtype, prod(shape), start).reshape(shape)
    return np.require(values, requirements="A")


def _is_float(values: NDArray[Any]) -> bool:
    # bfloat16 of ml_dtypes is of kind "V".
    return values.dtype.kind == "f" or values.dtype.name == "bfloat16"


# --- HDF5: a dataset for each parameter, with attributes `index` and `need_grad`.


def _write_h5(path: Path, entries: list[Entry]) -> None:
    with _needed("save_parameters", "h5py", ".h5 files").File(path, "w") as file:
        for index, entry in enumerate(entries):
            if entry.values.dtype.kind not in "biuf":
                raise ParameterError(
                    f"save_parameters: expected a dtype that .h5 can hold, got {entry.values.dtype} of {entry.name}; "
                    "save as .safetensors"
                )
            try:
                dataset = file.create_dataset(entry.name, data=entry.values)
            except (TypeError, ValueError) as error:
                raise ParameterError(
                    f"save_parameters: expected a name for .h5, got {entry.name!r}: {error}"
                ) from error
            dataset.attrs["index"] = index
            dataset.attrs["need_grad"] = bool(entry.need_grad)


def _read_h5(path: Path) -> list[Entry]:
    h5py = _needed("load_parameters", "h5py", ".h5 files")
    found: list[tuple[int, Entry]] = []

    def visit(name: str | bytes, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            found.append(_read_dataset(path, name, node))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except ParameterError:
        raise
    except Exception as error:  # h5py has a different error for each way in which a file can be broken.
        raise ParameterError(f"load_parameters: expected an HDF5 file, got {path}: {error}") from error
    found.sort(key=lambda item: item[0])
    return [entry for _, entry in found]


def _read_dataset(path: Path, name: str | bytes, dataset: Any) -> tuple[int, Entry]:
    shown = f"dataset {name!r} of {path}"
    if not isinstance(name, str):  # Bytes, where they are no UTF-8.
        raise ParameterError(f"load_parameters: expected a name, got {shown}")
    if dataset.external or dataset.is_virtual:
        raise ParameterError(f"load_parameters: expected values inside the file, got a reference to another in {shown}")
    if dataset.shape is None or dataset.dtype.kind not in "biuf":
        raise ParameterError(f"load_parameters: expected numbers, got dtype {dataset.dtype} in {shown}")
    if dataset.nbytes > _DEFLATE_LIMIT * path.stat().st_size:
        raise ParameterError(
            f"load_parameters: expected values inside the file, got only a shape {dataset.shape} in {shown}"
        )
    try:
        index, need_grad = int(dataset.attrs["index"]), bool(dataset.attrs["need_grad"])
    except (KeyError, TypeError, ValueError) as error:
        raise ParameterError(
            f"load_parameters: expected attributes `index` and `need_grad`, got none in {shown}"
        ) from error
    return index, Entry(name, dataset[...], need_grad)


# --- protobuf: NNabla's, in single precision.


def _write_protobuf(path: Path, entries: list[Entry]) -> None:
    for entry in entries:
        if not _is_float(entry.values):
            raise ParameterError(
                f"save_parameters: expected real numbers for .protobuf, got {entry.values.dtype} of {entry.name}; "
                "save as .safetensors"
            )
    path.write_bytes(parameter_protobuf.encode(entries))


def _read_protobuf(path: Path) -> list[Entry]:
    try:
        return [Entry(*found) for found in parameter_protobuf.decode(path.read_bytes())]
    except (OverflowError, ValueError) as error:
        raise ParameterError(f"load_parameters: expected a protobuf file of NNabla, got {path}: {error}") from error


def _needed(op: str, package: str, purpose: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{op}: expected the package {package} to be installed, for {purpose}") from error


_Format: TypeAlias = "tuple[Callable[[Path, list[Entry]], None], Callable[[Path], list[Entry]]]"

_FORMATS: dict[str | None, _Format] = {
    ".safetensors": (_write_safetensors, _read_safetensors),
    ".h5": (_write_h5, _read_h5),
    ".protobuf": (_write_protobuf, _read_protobuf),
}
