"""Loaders of what a cell of a CSV data set names: images, sounds, tables, arrays.

Knows files, on this machine or at an address, and their formats; knows no data sets. No pickle is loaded.
"""

from __future__ import annotations

import csv
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin

import numpy as np

from .._core import ArgumentError, UnsupportedError
from ..files import audio
from ..files.images import ImageError, read_channels, read_image, resized
from ..files.packages import needed
from .data_source import DataError
from .download import download, get_data_home, opened_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "LOADERS",
    "FileReader",
    "ImageError",
    "ResourceFileReader",
    "download",
    "get_data_home",
    "get_file_extension",
    "load",
    "load_audio",
    "load_audio_pydub",
    "load_csv",
    "load_image",
    "load_image_imread",
    "load_npy",
    "load_wav",
]


class FileReader:
    """Files by names that are relative to a folder, or to the folder that a file is in.

    Args:
        base_uri: The folder, or the file: a path, or an address (`http:`, `https:`, `file:`).

    Raises:
        UnsupportedError: If it is an address of another kind, such as `s3:`.
    """

    def __init__(self, base_uri: str | os.PathLike[str]) -> None:
        self._base_uri = os.fspath(base_uri)
        scheme, mark, _ = self._base_uri.partition("://")
        self._is_address = bool(mark)
        if mark and scheme.lower() not in ("http", "https", "file"):
            raise UnsupportedError(
                f"FileReader: expected a path, or an address with http, https or file, got {self._base_uri!r}"
            )

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
        if self._is_address:
            address = self._base_uri if filename is None else urljoin(self._base_uri, filename.replace("\\", "/"))
            with opened_address(address) as answer:
                content = io.BytesIO(answer.read())
            return io.TextIOWrapper(content, encoding, newline="") if textmode else content
        path = self._path(filename)
        return path.open(encoding=encoding, newline="") if textmode else path.open("rb")

    @contextmanager
    def open_cache(self, cache_name: str) -> Iterator[Any]:
        """A file `.h5` in the folder, open for reading in a `with` block.

        Args:
            cache_name: Its name.

        Raises:
            OSError: If it cannot be read.
            ImportError: If h5py is not installed.
        """
        h5py = needed("FileReader.open_cache", "h5py", ".h5 files", "h5")
        with self.open(cache_name) as file, h5py.File(file, "r") as cache:
            yield cache

    def listdir(self) -> list[str]:
        """The names in the folder, in order.

        Raises:
            UnsupportedError: If it is at an address: nothing tells what is there.
        """
        if self._is_address:
            raise UnsupportedError(f"FileReader.listdir: expected a folder on this machine, got {self._base_uri!r}")
        return sorted(path.name for path in self._path(".").iterdir())


def get_file_extension(source: str | os.PathLike[str] | IO[Any]) -> str:
    """The extension of a name, in lower case.

    Args:
        source: A path, or a file with a name.
    """
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return Path(name).suffix.lower()


class ResourceFileReader:
    """A file, or one that is open, with the ending of its name.

    Args:
        source: Path, or a file open for reading bytes; if it has a name, that says the ending.

    Raises:
        DataError: If it is neither, such as a file that is open for reading text.
    """

    def __init__(self, source: str | os.PathLike[str] | IO[bytes]) -> None:
        given: Any = source  # which may be of any type
        if isinstance(given, io.TextIOBase) or not (isinstance(given, (str, os.PathLike)) or hasattr(given, "read")):
            raise DataError(f"ResourceFileReader: expected a path or a file open for reading bytes, got {source!r}")
        self._source = source
        self.ext = get_file_extension(source)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The file for a `with` block, with an attribute `ext`.

        Raises:
            OSError: If it cannot be read.
        """
        if isinstance(self._source, (str, os.PathLike)):
            with FileReader(self._source).open() as file:
                yield _Named(file, self.ext)
        else:
            yield _Named(self._source, self.ext)


class _Named:
    """A file with the ending of its name."""

    def __init__(self, file: IO[bytes], ext: str) -> None:
        self._file, self.ext = file, ext

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)


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


def load_image_imread(
    file: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, max_range: float = 1.0
) -> NDArray[Any]:
    """An image as networks take it, in another size if wanted.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Colours (1 of grey, 3 or 4), height and width; those of the image by default.
        max_range: What the largest value of a pixel becomes; if negative, the pixels stay `uint8`.

    Returns:
        Array of shape (colours, height, width).

    Raises:
        ImageError: If the file is no image.
        ArgumentError: If the number of colours is another one.
    """
    if shape is not None and len(shape) != 3:
        raise ArgumentError(f"load_image_imread: expected `shape` to be colours, height and width, got {shape}")
    if shape is not None and min(shape[1:]) < 1:
        raise ArgumentError(f"load_image_imread: expected a height and a width above 0, got {shape}")
    colours = -1 if shape is None else int(shape[0])
    pixels = read_channels(file, is_grey=colours == 1, n_channels=colours)
    if shape is not None:
        pixels = resized(pixels, int(shape[1]), int(shape[2]))
    first = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return first if max_range < 0 else np.asarray(first * (max_range / 255.0))


def load_wav(
    path: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """A sound from a WAV file.

    Args:
        path: Path, or a file open for reading bytes.
        shape: Shape of the array; samples and channels by default.
        normalize: Without effect.

    Raises:
        DataError: If it has no sound, or one of another size.
    """
    try:
        samples = audio.read_audio(path)
        return samples if shape is None else samples.reshape(tuple(shape))
    except ValueError as error:
        raise DataError(f"load_wav: expected a sound of shape {shape}, got {_name(path)}: {error}") from error


def load_audio(
    file: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """A sound with as many samples and channels as wanted.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Samples and channels; those of the sound by default.
        normalize: Without effect.

    Raises:
        DataError: If it has no sound, or one that does not become one of these channels.
    """
    try:
        samples = audio.read_audio(file)
        return (
            samples if shape is None or tuple(shape) == samples.shape else audio.resized(samples, (shape[0], shape[1]))
        )
    except ValueError as error:
        raise DataError(f"load_audio: expected a sound of shape {shape}, got {_name(file)}: {error}") from error


load_audio_pydub = load_audio


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
    **dict.fromkeys((".wav", ".flac", ".ogg", ".aiff"), load_audio),
    ".csv": load_csv,
    ".npy": load_npy,
}
"""What reads files with an extension; called with a file, a shape or None, and whether to normalize."""

_load_functions = LOADERS  # NNabla's name, which programs import.


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
