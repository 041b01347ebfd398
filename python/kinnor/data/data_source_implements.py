"""Data sources for common cases."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _check, _core
from ..files.images import read_channels
from .cache_data_source import CacheDataSource
from .csv_data_source import CsvDataSource
from .data_source import (
    DataError,
    DataSource,
    DrawingDataSource,
    Orders,
    WrappingDataSource,
    check_source,
    copied,
    knows_epochs,
)
from .data_source_loader import load_image_imread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

__all__ = [
    "ENDINGS",
    "CacheDataSource",
    "ConcatDataSource",
    "CsvDataSource",
    "DataSourceWithWorkers",
    "ImageFolderDataSource",
    "SimpleDataSource",
]


class SimpleDataSource(DataSource):
    """Examples loaded by a function: the one at `position` is `load_func(order[position])`.

    The function is called once with 0, to count the arrays of an example. They are named `x0`, `x1` and so on.

    Args:
        load_func: Function from an example's index to a tuple of its arrays. The thread of an iterator calls it.
        num_examples: Number of examples.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.

    Raises:
        DataError: If there are no examples, or if the function does not return a tuple.
    """

    def __init__(
        self,
        load_func: Callable[[int], Sequence[Any]],
        num_examples: int,
        shuffle: bool = False,
        rng: RandomState | None = None,
    ) -> None:
        super().__init__(shuffle, rng)
        _check.callee("SimpleDataSource", "load_func", load_func)
        num_examples = _check.count("SimpleDataSource", "num_examples", num_examples, DataError)
        first = load_func(0)
        if not hasattr(first, "__len__"):
            raise DataError(
                "SimpleDataSource: expected `load_func` to return a tuple with the arrays of an example, "
                f"got {type(first).__name__}"
            )
        if isinstance(first, np.ndarray) and not _core.is_nnabla():
            raise DataError(
                "SimpleDataSource: expected `load_func` to return a tuple of arrays, got one array of shape "
                f"{first.shape}; a comma after it, `return x,`, makes a tuple"
            )
        self._load_func = load_func
        self._size = num_examples
        self._variables = [f"x{i}" for i in range(len(first))]
        self._orders = Orders(num_examples, shuffle, self._rng)

    def _get_data(self, position: int) -> Sequence[Any]:
        """Loads the example at a position of the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Loads the example at a position of an epoch's order."""
        return self._load_func(int(self._orders[generation][position]))

    def apply_order(self) -> None:
        """Move on to the order of the next epoch."""
        self._generation += 1
        if _core.is_nnabla():
            self._generate_order(self._generation)

    def _generate_order(self, generation: int) -> None:
        """Draw the orders up to this generation."""
        self._orders[generation]


class ConcatDataSource(DrawingDataSource):
    """Several sources, one after the other, as a single source.

    Args:
        data_source_list: The sources. They have the same variables.
        shuffle: Whether to shuffle the examples of all sources, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.

    Raises:
        DataError: If there are no sources, or if their variables differ.
    """

    def __init__(
        self, data_source_list: Sequence[DataSource], shuffle: bool = True, rng: RandomState | None = None
    ) -> None:
        super().__init__(shuffle, rng)
        names = [list(source.variables) for source in data_source_list]
        if not names or any(other != names[0] for other in names):
            raise DataError(f"ConcatDataSource: expected sources with the same variables, got {names}")
        self._data_sources = list(data_source_list)
        self._ends = list(accumulate(source.size for source in data_source_list))
        self._size = self._ends[-1]
        self._variables = names[0]
        self._orders = Orders(self._size, shuffle, self._rng)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns the example at a position of an epoch's order, from the source that has it."""
        index = int(self._orders[generation][position])
        which = bisect_right(self._ends, index)
        start = self._ends[which - 1] if which else 0
        return self._data_sources[which]._get_data(index - start)

    def close(self) -> None:
        """Close all sources."""
        if not self._closed:
            for source in self._data_sources:
                source.close()
        super().close()


class DataSourceWithWorkers(WrappingDataSource):
    """Another source whose examples are read ahead by several threads, in the same order.

    It is of use where reading waits for files, or is done by code that other threads may run beside, such as Pillow's
    for images. The threads start with the first example.

    Args:
        data_source: The source, which is closed with this one. Several threads read its examples in parallel.
        n_workers: Number of threads; by default `kinnor.get_num_threads()`.

    Raises:
        DataError: If the source is shuffled and cannot tell epochs apart, or if `n_workers` is less than 1.

    Examples:
        >>> from kinnor.data.data_source_implements import SimpleDataSource
        >>> source = DataSourceWithWorkers(SimpleDataSource(lambda i: (i, i**2), 10), n_workers=2)
        >>> [source.next() for _ in range(3)]
        [(0, 0), (1, 1), (2, 4)]
        >>> source.close()
    """

    AHEAD = 4
    """Number of examples that are read ahead for each thread."""

    def __init__(self, data_source: DataSource, n_workers: int | None = None) -> None:
        check_source("DataSourceWithWorkers", data_source)
        super().__init__(data_source.shuffle)
        if data_source.shuffle and not knows_epochs(data_source):
            raise DataError(
                "DataSourceWithWorkers: expected a source that defines _get_data_of_generation, as it is shuffled, got "
                f"{type(data_source).__name__}"
            )
        n_workers = _core.get_num_threads() if n_workers is None else n_workers
        self._n_workers: int = _check.count("DataSourceWithWorkers", "n_workers", n_workers, DataError)
        self._data_source = data_source
        self._variables, self._size = data_source.variables, data_source.size
        self._generation = data_source._generation
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: OrderedDict[tuple[int, int], Future[Sequence[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def _get_data(self, position: int) -> Sequence[Any]:
        """Returns the example at a position of the current order."""
        return self._get_data_of_generation(position, self._generation)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Returns an example that a worker has read, and lets workers read the next ones ahead."""
        window = self.AHEAD * self._n_workers
        with self._lock:
            if self._closed:
                raise DataError("DataSourceWithWorkers: expected an open source, got a closed one")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._n_workers, "kinnor-worker")
            for each in range(position, min(position + window, self._size)):
                key = (generation, each)
                if key not in self._ahead:
                    self._ahead[key] = self._pool.submit(self._read, each, generation)
            found = self._ahead.pop((generation, position))
            while len(self._ahead) > 4 * window:  # Readers that went elsewhere have left examples behind.
                _, left = self._ahead.popitem(last=False)
                left.cancel()
        return found.result()

    def _read(self, position: int, generation: int) -> Sequence[Any]:
        """Reads an example in a thread."""
        return copied(self._data_source._get_data_of_generation(position, generation))

    def close(self) -> None:
        """End the threads and close the source that is read."""
        with self._lock:
            is_open, self._closed = not self._closed, True
            pool, self._pool = self._pool, None
            self._ahead.clear()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if is_open:
            self._data_source.close()


ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""The endings of files that are taken for images."""


class ImageFolderDataSource(DrawingDataSource):
    """Images in folders, one folder for each class: `folder/cat/1.png`, `folder/dog/7.jpg` and so on.

    An example is an image `x`, shape (channels, height, width), from 0 to 1, and the number of its class `y`, shape
    (1,). Classes are the names of the folders in alphabetical order. Images in folders below those belong to the class,
    too. Hidden files and files of other types are left out.

    Args:
        folder: Path of the folder with the folders of the classes.
        shape: Channels (1 of grey, 3 or 4), height and width, which all images are brought to. By default the images
            have three channels and their own size, which has to be the same for all images of a batch.
        shuffle: True for a random order, a new one in each epoch.
        rng: Generator of the orders; `RandomState(313)` if it is None.

    Attributes:
        classes: Names of the classes; the place of a name is the number of its class.
        paths: Paths of the images.
        labels: Number of the class of each image.

    Raises:
        DataError: If there is no image.
        OSError: If the folder cannot be read.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from kinnor.files.images import write_image
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / name).mkdir()
        ...     write_image(folder / name / "1.png", np.zeros((8, 6, 3), np.uint8))
        >>> source = ImageFolderDataSource(folder, shape=(3, 4, 4))
        >>> source.size, source.classes
        (2, ['cat', 'dog'])
        >>> image, label = source.next()
        >>> image.shape, label
        ((3, 4, 4), array([0], dtype=int32))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        shape: Sequence[int] | None = None,
        shuffle: bool = False,
        rng: RandomState | None = None,
    ) -> None:
        super().__init__(shuffle, rng)
        self._original_source_uri = os.fspath(folder)
        self._shape = None if shape is None else tuple(shape)
        folders = sorted(path for path in Path(folder).iterdir() if path.is_dir() and not path.name.startswith("."))
        self.classes = [path.name for path in folders]
        found = [(path, label) for label, each in enumerate(folders) for path in _images(each)]
        if not found:
            raise DataError(
                f"ImageFolderDataSource: expected folders of images in {folder}, one for each class, got none "
                f"with files that end in {', '.join(ENDINGS)}"
            )
        self.paths = [path for path, _ in found]
        self.labels = np.array([label for _, label in found], np.int32)
        self._variables = ("x", "y")
        self._size = len(found)
        self._orders = Orders(self._size, shuffle, self._rng)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Reads the image at a position of an epoch's order."""
        return self.read(int(self._orders[generation][position]))

    def read(self, index: int) -> tuple[Any, ...]:
        """Read an image.

        Args:
            index: Its place in `paths`.

        Returns:
            The image and the number of its class.

        Raises:
            ImageError: If the file is no image.
        """
        shape = self._shape
        if shape is None:
            pixels = read_channels(self.paths[index], n_channels=3).transpose(2, 0, 1)
            return np.asarray(pixels * np.float32(1 / 255)), self.labels[index : index + 1]
        return load_image_imread(self.paths[index], shape).astype(np.float32), self.labels[index : index + 1]


def _images(folder: Path) -> list[Path]:
    """Returns the paths of the images in a folder and below, sorted, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
