"""Data sets cached as folders of arrays, which are read faster than CSV files with an image for each example.

The layout is NNabla's. `cache_index.csv` has the names and lengths of the array files, `cache_info.csv` the names of
the variables. Each array file has a NumPy array for each variable. NNabla imports `CacheDataSource` from
`data_source_implements`.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
import tempfile
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from .. import _core
from ..files.atomic import replacing, steadily
from ..files.parameter_file import read_h5_arrays
from ..files.progress import Progress
from .data_source import DataError, DataSource, DrawingDataSource, Orders, check_source, copied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState
    from numpy.typing import NDArray

    from .csv_data_source import CsvDataSource

__all__ = [
    "CacheDataSource",
    "DataSourceInOrderOfFiles",
    "DataSourceWithFileCache",
    "DataSourceWithFileCacheError",
    "write_cache",
]

EXAMPLES = 100
"""Number of examples in one file."""

KEPT = 8
"""Number of files whose arrays are kept in memory."""


class _FileOrders(Orders):
    """Orders that read one file after the other, drawn as NNabla draws them."""

    def __init__(self, lengths: Sequence[int], shuffle: bool, rng: RandomState, first_is_plain: bool = False) -> None:
        self._starts = list(accumulate(lengths, initial=0))
        super().__init__(self._starts[-1], shuffle, rng, first_is_plain)

    def _permutation(self) -> NDArray[np.int64]:
        """A random order of files, and of the examples within each file."""
        starts = self._starts
        files = self._rng.permutation(len(starts) - 1)
        return np.concatenate([starts[i] + self._rng.permutation(starts[i + 1] - starts[i]) for i in files])


class _FileCacheOrders(_FileOrders):
    """Orders that read one file after the other. Each order permutes the previous one, as NNabla's caches do."""

    def __init__(self, lengths: Sequence[int], shuffle: bool, rng: RandomState) -> None:
        starts = list(accumulate(lengths, initial=0))
        self._files: NDArray[np.int64] = np.arange(len(lengths))
        self._within = [np.arange(start, start + n) for start, n in zip(starts, lengths, strict=False)]
        super().__init__(lengths, shuffle, rng, first_is_plain=True)

    def _permutation(self) -> NDArray[np.int64]:
        """The previous order with files and examples permuted again."""
        self._files = self._rng.permutation(self._files)
        self._within = [self._rng.permutation(examples) for examples in self._within]
        return np.concatenate([self._within[i] for i in self._files])


class CacheDataSource(DrawingDataSource):
    """A data set in a folder that `kinnor conv_dataset` or NNabla wrote.

    Args:
        cachedir: Path of the folder.
        shuffle: Whether to shuffle the files, and the examples within each file, anew in each epoch. Each file is read
            once per epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        normalize: Whether to divide arrays of type `uint8` and `uint16` by the largest value of their type.

    Raises:
        DataError: If the folder is not such a data set.
        OSError: If the folder cannot be read.
    """

    _follows_reads = True

    def __init__(
        self,
        cachedir: str | os.PathLike[str],
        shuffle: bool = False,
        rng: RandomState | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__(shuffle, rng)
        self._folder = Path(cachedir)
        self._normalize = normalize
        self._kept: dict[int, dict[str, NDArray[Any]]] = {}
        self._files, lengths = self._index()
        self._ends = list(accumulate(lengths))
        self._size = self._ends[-1] if self._ends else 0
        info = self._folder / "cache_info.csv"
        self._variables = [row[0] for row in _rows(info)] if info.exists() else list(self._read(0))
        self._orders = self._ordered(lengths)

    def _ordered(self, lengths: Sequence[int]) -> Orders:
        """The orders of examples for files of these lengths."""
        return _FileOrders(lengths, self._shuffle, self._rng)

    def _index(self) -> tuple[list[str], list[int]]:
        """Read the names and lengths of the files."""
        path = self._folder / "cache_index.csv"
        files, lengths = [], []
        for row in _rows(path):
            if len(row) != 2 or not row[1].isdecimal() or not self._has(Path(row[0])):
                raise DataError(f"CacheDataSource: expected the name of a file and a length, got {row} in {path}")
            files.append(Path(row[0]).name)
            lengths.append(int(row[1]))
        if not files:
            raise DataError(f"CacheDataSource: expected files, got none in {path}")
        return files, lengths

    def _arrays(self, path: Path) -> dict[str, NDArray[Any]]:
        """Load the arrays of a file by variable."""
        with path.open("rb") as file:
            return {name: np.load(file, allow_pickle=False) for name in self._variables}

    def _has(self, file: Path) -> bool:
        """True if a path is the name of a file of the data set, or the absolute path of one."""
        return str(file) == file.name or (file.is_absolute() and file.parent.resolve() == self._folder.resolve())

    def _read(self, which: int) -> dict[str, NDArray[Any]]:
        """The arrays of a file, cached in memory."""
        if which in self._kept:
            return self._kept[which]
        path = self._folder / self._files[which]
        try:
            if path.suffix == ".h5":
                found = read_h5_arrays("CacheDataSource", path)
            else:
                found = steadily("CacheDataSource", path, self._arrays)
        except (ValueError, EOFError) as error:
            raise DataError(f"CacheDataSource: expected arrays, got {path}: {error}") from error
        length = self._ends[which] - (self._ends[which - 1] if which else 0)
        if any(array.ndim < 1 or len(array) != length for array in found.values()):
            raise DataError(f"CacheDataSource: expected arrays of {length} examples, got others in {path}")
        while len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[which] = found
        return found

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of an epoch's order, from the file that has it."""
        index = int(self._orders[generation][position])
        which = bisect_right(self._ends, index)
        arrays = self._read(which)
        at = index - (self._ends[which - 1] if which else 0)
        return [self._normal(arrays[name][at]) for name in self._variables]

    def _normal(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values divided by the largest value of their type, if `normalize` is set."""
        if self._normalize and values.dtype in (np.uint8, np.uint16):
            return np.asarray(values * np.float32(1 / np.iinfo(values.dtype).max))
        return values


class DataSourceInOrderOfFiles(DrawingDataSource):
    """Reads a CSV file in the orders that `DataSourceWithFileCache` would use, but without a cache.

    Args:
        data_source: The file to read, in its order of the current epoch.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
    """

    _follows_reads = True

    def __init__(self, data_source: CsvDataSource, shuffle: bool = False, rng: RandomState | None = None) -> None:
        super().__init__(shuffle, rng)
        self._data_source = data_source
        self._size = data_source.size
        self._variables = data_source.variables
        self._read_order = data_source.order
        lengths = [min(EXAMPLES, self._size - start) for start in range(0, self._size, EXAMPLES)]
        self._orders = _FileCacheOrders(lengths, shuffle, self._rng)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of the order that a file cache would have in an epoch."""
        return self._data_source.read(int(self._read_order[self._orders[generation][position]]))

    def reset(self) -> None:
        """Return to the first position."""
        super().reset()
        if _core.is_nnabla():
            self._data_source.reset()

    def close(self) -> None:
        """Close the original source."""
        if not self._closed:
            self._data_source.close()
        super().close()


class DataSourceWithFileCacheError(DataError):
    """The data set cannot be cached in files."""


class DataSourceWithFileCache(CacheDataSource):
    """Reads a source once, caches it in files, and reads the files.

    Args:
        data_source: The source to read, in its order of the current epoch.
        cache_dir: Path of the folder for the files, which is created and kept as a data set for `CacheDataSource`. By
            default a temporary folder, deleted when the source is closed.
        cache_file_name_prefix: Prefix of the file names.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.

    Raises:
        DataSourceWithFileCacheError: If there are no examples, or if they differ in shape.
        OSError: If a file cannot be written.

    Examples:
        >>> from kinnor.data.data_source_implements import SimpleDataSource
        >>> with DataSourceWithFileCache(SimpleDataSource(lambda i: (i, i**2), 5)) as source:
        ...     source.variables, source.size, [int(x) for x in (*source.next(), *source.next())]
        (['x0', 'x1'], 5, [0, 0, 1, 1])
    """

    def __init__(
        self,
        data_source: DataSource,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_file_name_prefix: str = "cache",
        shuffle: bool = False,
        rng: RandomState | None = None,
    ) -> None:
        check_source("DataSourceWithFileCache", data_source)
        self._data_source = data_source
        folder = Path(tempfile.mkdtemp(prefix="kinnor-cache-") if cache_dir is None else cache_dir)
        self._remove = finalize(self, _removed, folder, os.getpid()) if cache_dir is None else lambda: None
        try:
            self._written = write_cache(data_source, folder, prefix=cache_file_name_prefix)
            super().__init__(folder, shuffle, rng)
        except DataError as error:
            self._remove()
            raise DataSourceWithFileCacheError(str(error)) from error

    def _ordered(self, lengths: Sequence[int]) -> Orders:
        """The orders of examples; under NNabla's names the orders of NNabla's caches."""
        if _core.is_nnabla():
            return _FileCacheOrders(lengths, self._shuffle, self._rng)
        return super()._ordered(lengths)

    def reset(self) -> None:
        """Return to the first position."""
        super().reset()
        if _core.is_nnabla():
            self._data_source.reset()

    def _index(self) -> tuple[list[str], list[int]]:
        """The names and lengths of the files that this source wrote. Files of other writers do not count."""
        return [name for name, _ in self._written], [length for _, length in self._written]

    def close(self) -> None:
        """Close the original source, and remove temporary files."""
        if not self._closed:
            self._data_source.close()
            self._remove()
        super().close()


def _removed(folder: Path, process: int) -> None:
    """Remove a temporary folder, unless in a fork of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _rows(path: Path) -> list[list[str]]:
    """Read the rows of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"CacheDataSource: expected a CSV file, got {path}: {error}") from error


def write_cache(
    source: DataSource,
    folder: str | os.PathLike[str],
    prefix: str = "cache",
) -> list[tuple[str, int]]:
    """Write a data set as a folder of arrays. The names of the files depend on their contents.

    A reader of an older data set in the folder therefore never gets examples of this one. Its files are removed last,
    if they have the same prefix.

    Args:
        source: The data set. One epoch is written, in its order.
        folder: Path of the folder to create.
        prefix: Prefix of the file names.

    Returns:
        The name of each file, and its number of examples.

    Raises:
        DataError: If the arrays of examples differ in shape, or are objects.
        OSError: If a file cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    index = []
    with Progress(source.size, "cache") as bar:
        for start in range(0, source.size, EXAMPLES):
            stop = min(start + EXAMPLES, source.size)
            examples = []
            for i in range(start, stop):
                bar.to(i)
                examples.append(copied(source._get_data(i)))
            arrays = [_stacked(*each) for each in zip(source.variables, zip(*examples, strict=True), strict=True)]
            name = f"{prefix}_{start:08d}_{stop - 1:08d}_{_digest(arrays)}.npy"
            with replacing(target / name) as temporary, temporary.open("wb") as file:
                for array in arrays:
                    np.save(file, array, allow_pickle=False)
            index.append((name, stop - start))
    path = target / "cache_index.csv"
    older = [row[0] for row in _rows(path) if row] if path.exists() else []
    _write_rows(target / "cache_info.csv", [(name,) for name in source.variables])
    _write_rows(path, index)
    is_of_cache = re.compile(re.escape(prefix) + r"_\d{8}_\d{8}_[0-9a-f]{16}\.npy").fullmatch
    for name in set(older) - {name for name, _ in index}:
        if is_of_cache(name):
            (target / name).unlink(missing_ok=True)
    return index


def _stacked(variable: str, values: Sequence[Any]) -> NDArray[Any]:
    """The arrays of several examples as one."""
    shapes = {np.shape(value) for value in values}
    if len(shapes) != 1:
        raise DataError(f"write_cache: expected arrays of one shape for {variable!r}, got {shapes}")
    array = np.stack([np.asarray(value) for value in values])
    if array.dtype.hasobject:
        raise DataError(f"write_cache: expected arrays of numbers for {variable!r}, got objects")
    return array


def _digest(arrays: Sequence[NDArray[Any]]) -> str:
    """A hash of arrays as 16 digits."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _write_rows(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write the rows of a CSV file."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
