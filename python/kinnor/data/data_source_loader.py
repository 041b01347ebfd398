"""Loaders of the files named in cells of a CSV data set: images, audio, tables, arrays.

Files are local or at a URL. Knows no data sets. Pickled data is never loaded.
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
    """Opens files by names relative to a folder, or relative to the folder of a file.

    Args:
        base_uri: The folder or the file: a path, or a URL (`http:`, `https:`, `file:`).

    Raises:
        UnsupportedError: If the URL has another scheme, such as `s3:`.
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
        """The path of a file named relative to the folder."""
        base = Path(self._base_uri)
        if filename is None:
            return base
        return (base if base.is_dir() else base.parent) / filename.replace("\\", "/")

    def open(self, filename: str | None = None, textmode: bool = False, encoding: str = "utf-8-sig") -> IO[Any]:
        """Open a file for reading.

        Args:
            filename: Its name; by default the file in `base_uri`.
            textmode: Whether to open it as text.
            encoding: Encoding of the text.

        Raises:
            OSError: If the file cannot be read.
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
        """Open a `.h5` file of the folder in a `with` block.

        Args:
            cache_name: Name of the file.

        Raises:
            OSError: If the file cannot be read.
            ImportError: If h5py is not installed.
        """
        h5py = needed("FileReader.open_cache", "h5py", ".h5 files", "h5")
        with self.open(cache_name) as file, h5py.File(file, "r") as cache:
            yield cache

    def listdir(self) -> list[str]:
        """The names of the folder's files, sorted.

        Raises:
            UnsupportedError: If the folder is at a URL, because URLs cannot be listed.
        """
        if self._is_address:
            raise UnsupportedError(f"FileReader.listdir: expected a folder on this machine, got {self._base_uri!r}")
        return sorted(path.name for path in self._path(".").iterdir())


def get_file_extension(source: str | os.PathLike[str] | IO[Any]) -> str:
    """The extension of a name in lower case.

    Args:
        source: A path, or a file with a name.
    """
    name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return Path(name).suffix.lower()


class ResourceFileReader:
    """A file by its path, or an open file, with the extension of its name.

    Args:
        source: Path, or a file open for reading bytes. The name of an open file gives the extension.

    Raises:
        DataError: If `source` is something else, such as a file open for reading text.
    """

    def __init__(self, source: str | os.PathLike[str] | IO[bytes]) -> None:
        given: Any = source  # typed Any, because the caller may pass anything
        if isinstance(given, io.TextIOBase) or not (isinstance(given, (str, os.PathLike)) or hasattr(given, "read")):
            raise DataError(f"ResourceFileReader: expected a path or a file open for reading bytes, got {source!r}")
        self._source = source
        self.ext = get_file_extension(source)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file in a `with` block. The file has an attribute `ext`.

        Raises:
            OSError: If the file cannot be read.
        """
        if isinstance(self._source, (str, os.PathLike)):
            with FileReader(self._source).open() as file:
                yield _Named(file, self.ext)
        else:
            yield _Named(self._source, self.ext)


class _Named:
    """An open file with the extension of its name as attribute `ext`."""

    def __init__(self, file: IO[bytes], ext: str) -> None:
        self._file, self.ext = file, ext

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the file."""
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)


def load_image(
    file: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """Load an image as a network's input.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Channels, height and width; by default the image's.
        normalize: Whether to divide by the largest value of the type, so that the result is in [0, 1].

    Returns:
        Array of shape (channels, height, width).

    Raises:
        ImageError: If the file is not an image.
        DataError: If the image has another number of channels.
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
    """Load an image as a network's input, optionally resized.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Channels (1 for grey, 3 or 4), height and width; by default the image's.
        max_range: Value for the brightest pixel; if negative, the pixels stay `uint8`.

    Returns:
        Array of shape (channels, height, width).

    Raises:
        ImageError: If the file is not an image.
        ArgumentError: If the number of channels is another one.
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
    """Load a WAV file.

    Args:
        path: Path, or a file open for reading bytes.
        shape: Shape of the result; by default (samples, channels).
        normalize: Without effect.

    Raises:
        DataError: If the file has no audio, or if its size differs.
    """
    try:
        samples = audio.read_audio(path)
        return samples if shape is None else samples.reshape(tuple(shape))
    except ValueError as error:
        raise DataError(f"load_wav: expected a sound of shape {shape}, got {_name(path)}: {error}") from error


def load_audio(
    file: str | os.PathLike[str] | IO[bytes], shape: Sequence[int] | None = None, normalize: bool = False
) -> NDArray[Any]:
    """Load an audio file, resampled to a number of samples and channels.

    Args:
        file: Path, or a file open for reading bytes.
        shape: Samples and channels; by default the file's.
        normalize: Without effect.

    Raises:
        DataError: If the file has no audio, or if its channels cannot be converted.
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
    """Load a CSV table of numbers.

    Args:
        file: A file open for reading bytes.
        shape: Shape of the result; by default (rows, columns).
        normalize: Without effect.

    Raises:
        DataError: If a cell is not a number, or if the rows have different lengths.
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
    """Load an array from an `.npy` file.

    Args:
        path: Path, or a file open for reading bytes.
        shape: Shape of the result; by default the array's.
        normalize: Without effect.

    Raises:
        DataError: If the file is not an array of numbers.
    """
    try:
        found: NDArray[Any] = np.load(path, allow_pickle=False)
        return found if shape is None else found.reshape(tuple(shape))
    except (ValueError, EOFError) as error:
        raise DataError(f"load_npy: expected an array of numbers, got {_name(path)}: {error}") from error


def _name(file: Any) -> Any:
    """The name of a file for error texts."""
    return getattr(file, "name", file)


LOADERS: dict[str, Callable[..., NDArray[Any]]] = {
    **dict.fromkeys((".bmp", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff"), load_image),
    **dict.fromkeys((".wav", ".flac", ".ogg", ".aiff"), load_audio),
    ".csv": load_csv,
    ".npy": load_npy,
}
"""Loaders by extension. Their arguments are a file, a shape or None, and whether to normalize."""

_load_functions = LOADERS  # The name that programs of NNabla import.


def load(ext: str) -> Callable[..., NDArray[Any]]:
    """The loader for an extension.

    Args:
        ext: The extension, such as `.png`.

    Raises:
        DataError: If there is no loader for it.
    """
    if ext not in LOADERS:
        raise DataError(f"load: expected one of the extensions {list(LOADERS)}, got {ext!r}")
    return LOADERS[ext]
