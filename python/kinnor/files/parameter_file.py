"""Files of parameters: names, values, order and `need_grad`, as safetensors or NNabla's HDF5 and protobuf files.

Files are not trusted: all contents are checked.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from .. import _core
from .._check import check_paths, split
from .._core import ParameterError
from . import hdf5, parameter_protobuf
from .atomic import replacing, steadily
from .packages import needed
from .progress import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "CODES",
    "LONGEST_HEADER",
    "Entry",
    "PathOrFile",
    "check_names",
    "check_shape",
    "load",
    "read_h5",
    "read_h5_arrays",
    "read_safetensors",
    "regular",
    "rewind",
    "save",
    "write_safetensors",
]

PathOrFile: TypeAlias = "str | os.PathLike[str] | IO[bytes]"

_LATER = (".npz", ".onnx")
"""Extensions of formats that are not supported yet."""
LONGEST_HEADER = 100_000_000
"""Longest header that readers of safetensors accept, in bytes."""


class Entry(NamedTuple):
    """One parameter of a file."""

    name: str
    values: NDArray[Any]
    need_grad: bool


def save(path: PathOrFile, entries: list[Entry], extension: str | None = None) -> None:
    """Writes a file, atomically.

    Args:
        path: Path, or a file open for writing bytes. A file object is rewound to its start afterwards.
        entries: The parameters, in order.
        extension: Format, if the path has no known extension: `.safetensors`, `.h5` or `.protobuf`.

    Raises:
        ParameterError: If the format is unknown or cannot hold the values, or if a name cannot be loaded again.
        OSError: If the file cannot be written.
    """
    write, _ = _format("save_parameters", path, extension)
    check_names("save_parameters", [entry.name for entry in entries])
    if isinstance(path, (str, os.PathLike)):
        with replacing(path) as temporary:
            write(temporary, entries)
        return
    with _scratch_file() as temporary:
        write(temporary, entries)
        with temporary.open("rb") as file:
            shutil.copyfileobj(file, path)
    rewind(path)


def rewind(file: IO[Any]) -> None:
    """Moves a seekable file object to its start, as NNabla does after writing.

    Args:
        file: The file object.
    """
    if hasattr(file, "seekable") and file.seekable():
        file.seek(0)


def load(path: PathOrFile, extension: str | None = None) -> list[Entry]:
    """Reads a file.

    Args:
        path: Path, or a file open for reading bytes.
        extension: Format, if the path does not say it: `.safetensors`, `.h5` or `.protobuf`.

    Returns:
        The parameters, in the order in which they were saved.

    Raises:
        ParameterError: If the format is unknown or the file malformed.
        OSError: If the file cannot be read.
    """
    _, read = _format("load_parameters", path, extension)
    if isinstance(path, (str, os.PathLike)):
        entries = steadily("load_parameters", regular(path), read)
    else:
        with _scratch_file() as temporary:
            with temporary.open("wb") as file:
                shutil.copyfileobj(path, file)
            entries = read(temporary)
    for entry in entries:
        check_shape("load_parameters", entry.name, entry.values)
    return entries


def check_names(op: str, names: list[str]) -> None:
    """Raises ParameterError for names that cannot be loaded again unchanged.

    Args:
        op: Name of the calling operation, for errors.
        names: All names of the file.

    Raises:
        ParameterError: If a name is empty, too long or too deep, or passes through another one. Also if a part is
            empty, `.` or `..`, or has a character that cannot be encoded.
    """
    check_paths(op, names)
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ParameterError(f"{op}: expected a name that is text, got {name!r}") from error
        if name != "/".join(split(op, name)):
            raise ParameterError(f"{op}: expected a name without empty parts, got {name!r}")


def check_shape(op: str, name: str, values: NDArray[Any]) -> None:
    """Raises ParameterError for an empty array whose other axes are impossibly long.

    Args:
        op: Name of the calling operation, for errors.
        name: The name of the array.
        values: The array.

    Raises:
        ParameterError: If no memory could hold an array with the lengths other than zero.
    """
    if prod(length or 1 for length in values.shape) > sys.maxsize // 8:
        raise ParameterError(f"{op}: expected a shape that memory can hold, got {values.shape} of {name!r}")


def regular(path: str | os.PathLike[str]) -> Path:
    """The path of a regular file that can be opened.

    Args:
        path: The path.

    Raises:
        OSError: If it does not exist, cannot be opened, or is a pipe or a device.
    """
    found = Path(path)
    if found.exists() and not found.is_file():
        raise OSError(f"expected a path of a regular file, got {os.fspath(path)}")
    with found.open("rb"):  # raises the usual error if the file does not exist
        return found


@contextmanager
def _scratch_file() -> Iterator[Path]:
    """A path in a temporary folder, which is removed after the `with` block."""
    with tempfile.TemporaryDirectory(prefix="kinnor-") as folder:
        yield Path(folder, "parameters")


def _format(op: str, path: PathOrFile, extension: str | None) -> _Format:
    """The functions that write and read the format of a path or file object."""
    if isinstance(path, (str, os.PathLike)):
        extension = Path(path).suffix if Path(path).suffix in (*_FORMATS, *_LATER) else extension
        shown = f"{os.fspath(path)!r}"
    else:
        shown = f"a file object with extension={extension!r}"
    if extension in _LATER:
        raise NotImplementedError(f"{op}: expected {_extensions()}, got {shown}: {extension} is not supported yet")
    if extension not in _FORMATS:
        ending = Path(path).suffix if isinstance(path, (str, os.PathLike)) else extension
        hint = f"; {_OF_OTHERS[ending]}" if ending in _OF_OTHERS else ""
        raise ParameterError(f"{op}: expected a name that ends in {_extensions()}, got {shown}{hint}")
    return _FORMATS[extension]


_PICKLED = "safetensors.torch.save_file(model.state_dict(), path) of PyTorch writes a file that Kinnor reads"
_OF_OTHERS = {
    ".bin": _PICKLED,
    ".ckpt": _PICKLED,
    ".nnp": "kinnor.save and kinnor.load are for networks",
    ".npz": "numpy.savez and numpy.load are for arrays",
    ".onnx": "kinnor.onnx.save and kinnor.onnx.load are for networks",
    ".pt": _PICKLED,
    ".pth": _PICKLED,
}
"""Endings of files of other formats, and what writes or reads them."""


def _extensions() -> str:
    """The supported extensions, for errors."""
    return " or ".join(filter(None, _FORMATS))


# --- safetensors: a JSON object in the header's metadata stores order and `need_grad`.


CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""The name of each element type in safetensors."""


def write_safetensors(path: Path, entries: list[Entry]) -> None:
    """Writes a file in place. The caller makes the replacement atomic."""
    need_grad = {entry.name: entry.need_grad for entry in entries}
    if "__metadata__" in need_grad:
        raise ParameterError("save_parameters: expected a name for .safetensors, got '__metadata__'")
    header: dict[str, Any] = {"__metadata__": {"format": "kinnor", "need_grad": json.dumps(need_grad)}}
    end = 0
    # Large element types come first, so that all arrays are aligned.
    ordered = sorted(entries, key=lambda entry: (-entry.values.itemsize, entry.name))
    for name, values, _ in ordered:
        start, end = end, end + values.nbytes
        header[name] = {"dtype": CODES[values.dtype.name], "shape": values.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise ParameterError(
            f"save_parameters: expected names and shapes in at most {LONGEST_HEADER} bytes, got {len(text)}"
        )
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in each(ordered, "save parameters"):
            file.write(np.ascontiguousarray(entry.values).reshape(-1).view(np.uint8).data)


def read_safetensors(path: Path) -> list[Entry]:
    """Reads an untrusted safetensors file."""
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
    """The array at byte `start` of the file, without a copy if it is aligned."""
    if dtype == "bfloat16":
        needed("load_parameters", "ml_dtypes", "values in bfloat16", "bfloat16")  # registers the type with NumPy
    values = np.frombuffer(content, dtype, prod(shape), start).reshape(shape)
    return np.require(values, requirements="A")


def _is_float(values: NDArray[Any]) -> bool:
    """True for floating-point types, including bfloat16 of ml_dtypes, whose kind is "V"."""
    return values.dtype.kind == "f" or values.dtype.name == "bfloat16"


# --- HDF5: a dataset for each parameter, with attributes `index` and `need_grad`.

_H5_AXES = 32
"""HDF5's limit on the axes of a dataset."""


def _write_h5(path: Path, entries: list[Entry]) -> None:
    """Writes an HDF5 file in place."""
    for entry in entries:
        if entry.values.dtype.kind not in "biuf":
            raise ParameterError(
                f"save_parameters: expected a dtype that .h5 can hold, got {entry.values.dtype} of {entry.name}; "
                "save as .safetensors"
            )
        if entry.values.ndim > _H5_AXES:
            raise ParameterError(
                f"save_parameters: expected at most {_H5_AXES} axes for .h5, got {entry.values.ndim} of {entry.name}; "
                "save as .safetensors"
            )
    with hdf5.writing("save_parameters", path) as file:
        for index, entry in enumerate(each(entries, "save parameters")):
            dataset = file.create_dataset(entry.name, data=entry.values)
            dataset.attrs["index"] = index
            dataset.attrs["need_grad"] = bool(entry.need_grad)


def _read_h5(path: Path) -> list[Entry]:
    """Reads an untrusted HDF5 file."""
    return read_h5("load_parameters", path)


def read_h5(op: str, path: str | os.PathLike[str], content: bytes | None = None) -> list[Entry]:
    """Reads an untrusted HDF5 file of parameters.

    Args:
        op: Name of the calling operation, for errors.
        path: The file.
        content: The content of the file, if it is a member of an archive.

    Raises:
        ParameterError: If it is malformed.
    """
    found: list[tuple[int, Entry]] = []
    with hdf5.reading(op, path, content) as nodes:
        for node in each(nodes, "load parameters"):
            if not node.is_dataset:
                continue
            index, need_grad = node.number("index"), node.number("need_grad")
            # Old files have no `index`, files of other programs no `need_grad`.
            entry = Entry(node.name, node.values(), need_grad is None or bool(need_grad))
            found.append((sys.maxsize if index is None else index, entry))
    found.sort(key=lambda item: (item[0], item[1].name if item[0] == sys.maxsize else ""))
    return [entry for _, entry in found]


def read_h5_arrays(op: str, path: Path) -> dict[str, NDArray[Any]]:
    """All datasets of an untrusted HDF5 file, by name.

    Args:
        op: Name of the calling operation, for errors.
        path: The file.

    Raises:
        ParameterError: If it is malformed.
    """

    def read(path: Path) -> dict[str, NDArray[Any]]:
        """Reads all datasets."""
        with hdf5.reading(op, path) as nodes:
            return {node.name: node.values() for node in nodes if node.is_dataset}

    return steadily(op, path, read)


# --- protobuf: NNabla's message, in single precision.


def _write_protobuf(path: Path, entries: list[Entry]) -> None:
    """Writes a protobuf file in place."""
    for entry in entries:
        if not _is_float(entry.values):
            raise ParameterError(
                f"save_parameters: expected real numbers for .protobuf, got {entry.values.dtype} of {entry.name}; "
                "save as .safetensors"
            )
    with path.open("wb") as file:
        file.writelines(parameter_protobuf.pieces(entries))


def _read_protobuf(path: Path) -> list[Entry]:
    """Reads an untrusted protobuf file."""
    try:
        return [Entry(*found) for found in parameter_protobuf.decode(path.read_bytes())]
    except (OverflowError, ValueError) as error:
        raise ParameterError(f"load_parameters: expected a protobuf file of NNabla, got {path}: {error}") from error


_Format: TypeAlias = "tuple[Callable[[Path, list[Entry]], None], Callable[[Path], list[Entry]]]"

_FORMATS: dict[str | None, _Format] = {
    ".safetensors": (write_safetensors, read_safetensors),
    ".h5": (_write_h5, _read_h5),
    ".protobuf": (_write_protobuf, _read_protobuf),
}
"""The functions that write and read a file, by extension."""
