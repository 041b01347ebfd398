"""Loaders of what a cell of a CSV data set names: images, tables, arrays.

Knows files on this machine and their formats; knows no data sets. No pickle is loaded.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import UnsupportedError
from ..files.images import ImageError, read_image, resized
from .data_source import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["LOADERS", "FileReader", "ImageError", "get_file_extension", "load", "load_csv", "load_image", "load_npy"]


class FileReader:
    """Files by names that are relative to a folder, or to the folder that a file is in.

    Args:
        base_uri: The folder, or the file.

    Raises:
        UnsupportedError: If it is on another machine.
    """

    def __init__(self, base_uri: str | os.PathLike[str]) -> None:
        self._base_uri = os.fspath(base_uri)
        if "://" in self._base_uri:
            raise UnsupportedError(f"FileReader: expected a path on this machine, got {self._base_uri!r}")

    def _path(self, filename: str | None) -> Path:
        base = Path(self._base_uri)
        if filename is None:
            return base
        return (base if base.is_dir() else base.parent) / filename.replace("\\", "/")

    def open(self, filename: str | None = None, textmode: bool = False, encoding: str = "utf-8-sig") -> IO[Any]:
        """Open a file for reading.

        Args:
            filename: Its name; the file that the reader was made of by default.
            textmode: Whether to read text.
            encoding: Of the text.

        Raises:
            OSError: If it cannot be read.
        """
        path = self._path(filename)
        return path.open(encoding=encoding, newline="") if textmode else path.open("rb")

    def listdir(self) -> list[str]:
        """The names in the folder, in order."""
        return sorted(path.name for path in self._path(".").iterdir())


def get_file_extension(source: str | os.PathLike[str] | IO[Any]) -> str:
    """The extension of a name, in lower case.

    Args:
        source: A path, or a file with a name.
    """
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return Path(name).suffix.lower()


def load_image(
    file: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """An image as networks take it.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Colours, height and width; those of the image by default.
        normalize: Whether to divide by the largest value, so that the result lies within [0, 1].

    Returns:
        Array of shape (colours, height, width).

    Raises:
        ImageError: If the file is no image.
        DataError: If it has another number of colours.
    """
    pixels = read_image(file)
    if shape is not None:
        colours, height, width = shape
        n_colours = 1 if pixels.ndim == 2 else pixels.shape[2]
        if colours != n_colours:
            raise DataError(f"load_image: expected {colours} colours, got {n_colours} in {_name(file)}")
        if (height, width) != pixels.shape[:2]:
            pixels = resized(pixels, height, width)
    pixels = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if not normalize or pixels.dtype.kind != "u":
        return pixels
    return np.asarray(pixels * np.float32(1 / np.iinfo(pixels.dtype).max))


def load_csv(file: IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False) -> NDArray[Any]:
    """A table of numbers.

    Args:
        file: A file open for reading bytes.
        shape: Shape of the array; rows and columns by default.
        normalize: Without effect.

    Raises:
        DataError: If a cell is no number, or if the rows do not have the same length.
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(file.read().decode("utf-8-sig"))) if row]
        table = np.array([[float(cell) for cell in row] for row in rows])
        return table if shape is None else table.reshape(tuple(shape))
    except (ValueError, csv.Error) as error:
        raise DataError(f"load_csv: expected a table of numbers, got {_name(file)}: {error}") from error


def load_npy(
    path: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """An array of NumPy's.

    Args:
        path: Path, or a file open for reading bytes.
        shape: Shape of the array; its own by default.
        normalize: Without effect.

    Raises:
        DataError: If it is no array of numbers.
    """
    try:
        found: NDArray[Any] = np.load(path, allow_pickle=False)
        return found if shape is None else found.reshape(tuple(shape))
    except (ValueError, EOFError) as error:
        raise DataError(f"load_npy: expected an array of numbers, got {_name(path)}: {error}") from error


def _name(file: Any) -> Any:
    return getattr(file, "name", file)


LOADERS: dict[str, Callable[..., NDArray[Any]]] = {
    **dict.fromkeys((".bmp", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff"), load_image),
    ".csv": load_csv,
    ".npy": load_npy,
}
"""What reads files with an extension; called with a file, a shape or None, and whether to normalize."""


def load(ext: str) -> Callable[..., NDArray[Any]]:
    """The loader of files with an extension.

    Args:
        ext: The extension, such as `.png`.

    Raises:
        DataError: If there is none.
    """
    if ext not in LOADERS:
        raise DataError(f"load: expected one of the extensions {list(LOADERS)}, got {ext!r}")
    return LOADERS[ext]
