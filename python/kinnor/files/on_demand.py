"""Parameters of safetensors files that are read on demand.

Files are not trusted: header and index are checked first. No file is mapped into memory. If another process shortened a
mapped file, this one would end without an error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._check import listed
from .._core import ParameterError
from .atomic import Stamp, stamp, steadily
from .packages import needed
from .parameter_file import CODES, LONGEST_HEADER, regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ParameterFiles", "open_parameters"]

_OP = "open_parameters"
_INDEX = ".safetensors.index.json"
"""The ending of the index of a model in several files."""
_DTYPES = {code: dtype for dtype, code in CODES.items()}
"""NumPy's name of each element type of the format."""
_LONGEST_INDEX = LONGEST_HEADER
"""Longest index that is read, in bytes."""


class _Place(NamedTuple):
    """Where the values of a parameter are."""

    path: Path
    stamp: Stamp
    """The file's stamp when it was opened."""
    start: int
    """The place of the first byte in the file."""
    code: str
    """The element type, as the format calls it."""
    shape: tuple[int, ...]


class ParameterFiles(Mapping[str, "NDArray[Any]"]):
    """The parameters of safetensors files by name. An array is read from its file each time it is asked for.

    `open_parameters` returns it. Arrays are read-only.
    """

    def __init__(self, places: dict[str, _Place]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Reads a parameter.

        Raises:
            KeyError: If no parameter has this name.
            ParameterError: If the file was written or replaced since it was opened.
            OSError: If the file cannot be read.
        """
        place = self._places[name]
        dtype = _dtype(place.code)

        def read(path: Path) -> bytes:
            """Reads the values."""
            if stamp(path) != place.stamp:
                expected = f"{path} as it was when it was opened"
                raise ParameterError(f"{_OP}: expected {expected}, got a file that was written since; open it again")
            with path.open("rb") as file:
                file.seek(place.start)
                return file.read(prod(place.shape) * dtype.itemsize)

        if prod(place.shape) == 0:
            return _read_only(np.zeros(place.shape, dtype))
        return np.frombuffer(steadily(_OP, place.path, read), dtype).reshape(place.shape)

    def __contains__(self, name: object) -> bool:
        """True if a parameter has this name. Reads nothing."""
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._places)

    def __len__(self) -> int:
        """The number of parameters."""
        return len(self._places)

    def __repr__(self) -> str:
        """The number of parameters, and the files."""
        files = dict.fromkeys(os.fspath(place.path) for place in self._places.values())
        return f"<ParameterFiles: {len(self)} parameters of {listed(list(files))}>"


def open_parameters(path: str | os.PathLike[str]) -> ParameterFiles:
    """Opens the parameters of a `.safetensors` file, or of several files with an index, without reading the values.

    Each array is read when it is asked for. Opening is fast, and a part of a large file can be used alone.

    Args:
        path: A `.safetensors` file, an index that ends in `.safetensors.index.json`, or a folder that holds one of
            them. An index names the file of each parameter, as checkpoints of Hugging Face do.

    Returns:
        Arrays by name, read-only: in the order of the index, else in the order of the file.

    Raises:
        ParameterError: If a file is malformed, or an index names a parameter that its file lacks. If a folder has no
            such file, or several. Later, if a file was written or replaced before an array is read.
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
        return ParameterFiles(_of_index(found))
    if found.suffix != ".safetensors":
        hint = "; load_parameters reads other formats" if found.suffix in (".h5", ".protobuf", ".nnp") else ""
        expected = f"a name that ends in .safetensors or {_INDEX}, or a folder"
        raise ParameterError(f"{_OP}: expected {expected}, got {os.fspath(path)!r}{hint}")
    return ParameterFiles(_of_file(found))


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


def _of_index(path: Path) -> dict[str, _Place]:
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


def _of_file(path: Path) -> dict[str, _Place]:
    """The parameters of one file."""
    return steadily(_OP, regular(path), _places)


def _places(path: Path) -> dict[str, _Place]:
    """Reads and checks the header."""
    opened = stamp(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise _malformed(path, "a header within the file", f"{length} bytes")
        entries = _entries(path, file.read(length))
    _check_places(path, entries, size - 8 - length)
    for _, code, shape, *_ in entries:
        try:
            np.broadcast_to(np.zeros((), _dtype(code)), shape)
        except ValueError as error:
            raise _malformed(path, "shapes of NumPy", str(error)) from error
    return {name: _Place(path, opened, 8 + length + start, code, shape) for name, code, shape, start, _ in entries}


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
