"""Opening of files by extension in a `with` block, and the loaders and savers of `_file_handlers`."""

from __future__ import annotations

import io
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kinnor import ArgumentError
from kinnor.files.packages import needed

from ._file_handlers import (
    FileHandlerContext,
    get_buf_type,
    get_decorated_file_loader,
    get_default_file_savers,
    get_initial_file_loader,
    get_parameter_file_loader,
    get_parameter_file_savers,
    load_files,
    load_solve_state_from_h5,
    save_files,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = [
    "FileHandlerContext",
    "get_buf_type",
    "get_decorated_file_loader",
    "get_default_file_savers",
    "get_file_handle_load",
    "get_file_handle_save",
    "get_initial_file_loader",
    "get_parameter_file_loader",
    "get_parameter_file_savers",
    "load_files",
    "load_solve_state_from_h5",
    "save_files",
]

TEXT = (".nntxt", ".prototxt")
"""Extensions of text files."""
BYTES = (".protobuf",)
"""Extensions of binary files."""


@contextmanager
def get_file_handle_load(
    nnp: zipfile.ZipFile | None, path: str | os.PathLike[str] | IO[Any], ext: str
) -> Iterator[Any]:
    """Open a file for reading in a `with` block. Files that the caller opened stay open.

    Args:
        nnp: The archive that contains the file, or None if the file is not in an archive.
        path: Path, name in the archive, or an open file.
        ext: `.nnp`, `.h5`, `.nntxt`, `.prototxt` or `.protobuf`.

    Returns:
        A `zipfile.ZipFile`, an `h5py.File`, or a text or binary file. Members of archives are binary files.

    Raises:
        ArgumentError: If `ext` is another extension.
        OSError: If the file cannot be read.
        ImportError: If the format needs h5py, which is not installed.
    """
    if nnp is not None:
        with nnp.open(str(path)) as member:
            if ext != ".h5":
                yield member
                return
            with _hdf5(io.BytesIO(member.read()), "r") as file:
                yield file
        return
    source = io.BytesIO(path.read()) if ext == ".h5" and hasattr(path, "read") else path
    with _opened("get_file_handle_load", source, ext, "r") as file:
        yield file


@contextmanager
def get_file_handle_save(path: str | os.PathLike[str] | IO[Any], ext: str) -> Iterator[Any]:
    """Open a file for writing in a `with` block. Files that the caller opened stay open.

    Args:
        path: Path, or an open file. The position of an open file is set to its start at the end.
        ext: `.nnp`, `.h5`, `.nntxt`, `.prototxt` or `.protobuf`.

    Returns:
        A `zipfile.ZipFile`, an `h5py.File`, or a text or binary file.

    Raises:
        ArgumentError: If `ext` is another extension.
        OSError: If the file cannot be written.
        ImportError: If the format needs h5py, which is not installed.
    """
    try:
        with _opened("get_file_handle_save", path, ext, "w") as file:
            yield file
    finally:
        if not isinstance(path, str) and hasattr(path, "seek"):
            path.seek(0)


@contextmanager
def _opened(op: str, path: Any, ext: str, mode: str) -> Iterator[Any]:
    """Open a file as its extension requires, for a `with` block."""
    if ext == ".nnp":
        with zipfile.ZipFile(path, "w" if mode == "w" else "r") as archive:
            yield archive
    elif ext == ".h5":
        with _hdf5(path, mode) as file:
            yield file
    elif ext not in (*TEXT, *BYTES):
        raise ArgumentError(f"{op}: expected `ext` to be .nnp, .h5, .nntxt, .prototxt or .protobuf, got {ext!r}")
    elif hasattr(path, "read"):
        yield path
    else:
        with Path(path).open(mode if ext in TEXT else f"{mode}b") as opened:
            yield opened


def _hdf5(path: Any, mode: str) -> Any:
    """Open an HDF5 file with h5py."""
    return needed("get_file_handle", "h5py", ".h5 files", "h5").File(path, mode)
