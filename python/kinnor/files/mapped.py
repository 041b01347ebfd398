"""Parameters of safetensors files as arrays that are mapped into memory: only what a program reads is loaded.

Files are not trusted: the header and the index are checked before an array refers to the file.
"""

from __future__ import annotations

import json
import os
import sys
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._check import listed
from .._core import ParameterError
from .atomic import steadily
from .packages import needed
from .parameter_file import CODES, LONGEST_HEADER, regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["open_parameters"]

_OP = "open_parameters"
_INDEX = ".safetensors.index.json"
"""The ending of the index of a model in several files."""
_DTYPES = {code: dtype for dtype, code in CODES.items()}
"""NumPy's name of each element type of the format."""
_LONGEST_INDEX = LONGEST_HEADER
"""Longest index that is read, in bytes."""


def open_parameters(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Opens the parameters of a `.safetensors` file, or of several files with an index, without reading the values.

    The arrays are read-only and refer to the files: the system loads the pages that a program uses. Opening is fast,
    and a part of a large file can be used alone. Do not write to a file in place while its arrays are in use.
    `kinnor.save_parameters` replaces a file, so the arrays of the old file stay valid. Windows refuses that until no
    array refers to the old file.

    Args:
        path: A `.safetensors` file, an index that ends in `.safetensors.index.json`, or a folder that holds one of
            them. An index names the file of each parameter, as checkpoints of Hugging Face do.

    Returns:
        Arrays by name: in the order of the index, else in the order of the file.

    Raises:
        ParameterError: If a file is malformed, if an index names a parameter that its file lacks, or if a folder
            has no such file or several.
        OSError: If a file cannot be read.
        ImportError: If a file has values in bfloat16, and `ml_dtypes` is not installed.

    Examples:
        >>> import tempfile, pathlib
        >>> import kinnor as nn, kinnor.layers as L
        >>> path = pathlib.Path(tempfile.mkdtemp(), "layer.safetensors")
        >>> layer = L.Linear(3, 2)
        >>> layer.save_parameters(path)
        >>> weights = nn.open_parameters(path)
        >>> {name: array.shape for name, array in weights.items()}
        {'W': (3, 2), 'b': (2,)}
        >>> layer.load_state_dict(weights)
        LoadedNames(missing_keys=[], unexpected_keys=[])
    """
    found = Path(path)
    if found.is_dir():
        found = _only_file(found)
    if found.name.endswith(_INDEX):
        return _of_index(found)
    if found.suffix != ".safetensors":
        hint = "; load_parameters reads other formats" if found.suffix in (".h5", ".protobuf", ".nnp") else ""
        expected = f"a name that ends in .safetensors or {_INDEX}, or a folder"
        raise ParameterError(f"{_OP}: expected {expected}, got {os.fspath(path)!r}{hint}")
    return _of_file(found)


def _only_file(folder: Path) -> Path:
    """The index in a folder, or the only safetensors file."""
    for pattern in (f"*{_INDEX}", "*.safetensors"):
        files = sorted(folder.glob(pattern))
        if len(files) == 1:
            return files[0]
        if files:
            names = [file.name for file in files]
            raise ParameterError(
                f"{_OP}: expected one {pattern} in {folder}, got {listed(names)}; give the path of one"
            )
    raise ParameterError(f"{_OP}: expected a folder with a .safetensors file, got {os.fspath(folder)!r}")


def _of_index(path: Path) -> dict[str, NDArray[Any]]:
    """The parameters of the files that an index names."""

    def read(path: Path) -> bytes:
        """Reads the index, at most a byte too many."""
        with path.open("rb") as file:
            return file.read(_LONGEST_INDEX + 1)

    try:
        content = steadily(_OP, regular(path), read)
        index = json.loads(content) if len(content) <= _LONGEST_INDEX else None
    except (ValueError, RecursionError):
        index = None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(_is_file_name(name) for name in places.values()):
        expected = "an index with the names of files in its folder by parameter, under `weight_map`"
        raise ParameterError(f"{_OP}: expected {expected}, got another in {path}")
    files = {name: _of_file(path.with_name(name)) for name in dict.fromkeys(places.values())}
    if absent := [name for name, file in places.items() if name not in files[file]]:
        raise ParameterError(f"{_OP}: expected files with the parameters of {path}, got files without {listed(absent)}")
    return {name: files[file][name] for name, file in places.items()}


def _is_file_name(name: object) -> bool:
    """True for the name of a safetensors file that does not lead to another folder."""
    return isinstance(name, str) and name.endswith(".safetensors") and not {"/", "\\", ":", "\0"} & set(name)


def _of_file(path: Path) -> dict[str, NDArray[Any]]:
    """The parameters of one file."""
    return steadily(_OP, regular(path), _mapped)


def _mapped(path: Path) -> dict[str, NDArray[Any]]:
    """Checks the header, and maps the file into memory."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise _malformed(path, "a header within the file", f"{length} bytes")
        entries = _entries(path, file.read(length))
    _check_places(path, entries, size - 8 - length)
    # An empty file cannot be mapped.
    content = np.memmap(path, np.uint8, "r", 8 + length) if size > 8 + length else b""
    try:
        return {
            name: np.frombuffer(content, _dtype(code), prod(shape), start).reshape(shape)
            if prod(shape)
            else _read_only(np.zeros(shape, _dtype(code)))
            for name, code, shape, start, _ in entries
        }
    except ValueError as error:
        raise _malformed(path, "shapes of NumPy", str(error)) from error


_Entry = tuple[str, str, tuple[int, ...], int, int]
"""Name, code of the element type, shape, and the places of the first byte and after the last one."""


def _entries(path: Path, header: bytes) -> list[_Entry]:
    """The tensors of a header, in the order of the file."""
    try:
        fields = json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, "a header in JSON", str(error)) from error
    if not isinstance(fields, dict):
        raise _malformed(path, "an object in JSON as the header", type(fields).__name__)
    fields.pop("__metadata__", None)
    found = []
    for name, field in fields.items():
        try:
            code, shape, (start, end) = field["dtype"], tuple(field["shape"]), field["data_offsets"]
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed(path, f"dtype, shape and data_offsets of {name!r}", repr(field)[:80]) from error
        if not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
            raise _malformed(path, f"whole numbers as shape and offsets of {name!r}", repr(field)[:80])
        if not isinstance(code, str) or code not in _DTYPES:
            raise _malformed(path, f"a dtype of NumPy for {name!r}", repr(code)[:80])
        found.append((name, code, shape, start, end))
    return sorted(found, key=lambda entry: entry[3:])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError if a name occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _check_places(path: Path, entries: list[_Entry], size: int) -> None:
    """Raises ParameterError unless the tensors fill the data of the file, each by as many bytes as it needs."""
    at = 0
    for name, code, shape, start, end in entries:
        if prod(n or 1 for n in shape) > sys.maxsize // 8:
            raise _malformed(path, "shapes that memory can hold", f"{shape} of {name!r}")
        if start != at or end - start != prod(shape) * _itemsize(code):
            expected = f"{name!r} of shape {shape} and {code} at byte {at}"
            raise _malformed(path, expected, f"bytes {start} to {end}")
        at = end
    if at != size:
        raise _malformed(path, f"{at} bytes of values", f"{size}")


def _itemsize(code: str) -> int:
    """The bytes of an element."""
    return 2 if code == "BF16" else np.dtype(_DTYPES[code]).itemsize


def _dtype(code: str) -> Any:
    """NumPy's element type."""
    if code == "BF16":
        needed(_OP, "ml_dtypes", "values in bfloat16", "bfloat16")  # registers the type with NumPy
    return np.dtype(_DTYPES[code])


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array, which can no longer be written to."""
    array.flags.writeable = False
    return array


def _malformed(path: Path, expected: str, got: str) -> ParameterError:
    """The error about a file that is not valid."""
    return ParameterError(f"{_OP}: expected a safetensors file with {expected}, got {got} in {path}")
