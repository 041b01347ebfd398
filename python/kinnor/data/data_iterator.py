"""Functions that create data iterators from sources, loading functions and files."""

from __future__ import annotations

import functools
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _check, _core
from .._check import explained
from .._core import CallError
from .._suggest import absent
from .batches import DataIterator
from .cache_data_source import DataSourceInOrderOfFiles, DataSourceWithFileCache
from .data_source import DataSource, DataSourceWithMemoryCache, check_source
from .data_source_implements import (
    CacheDataSource,
    ConcatDataSource,
    CsvDataSource,
    DataSourceWithWorkers,
    ImageFolderDataSource,
    SimpleDataSource,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from numpy.random import RandomState
    from numpy.typing import NDArray

__all__ = [
    "DataIterator",
    "data_iterator",
    "data_iterator_cache",
    "data_iterator_concat_datasets",
    "data_iterator_csv_dataset",
    "data_iterator_image_folder",
    "data_iterator_simple",
]

_F = TypeVar("_F", bound="Callable[..., Any]")

ELSEWHERE = {
    "dataset": "load_func",
    "sampler": "`shuffle` and `rng` give the order",
    "transform": "`load_func` may change what it returns; `map` of a data source changes examples",
    "collate_fn": "arrays of one shape are stacked; `map` of a data source changes examples",
    "drop_last": "every batch has `batch_size` examples; the last one of an epoch is filled from the next epoch",
    "num_workers": "`n_workers` of data_iterator and data_iterator_image_folder is the number of threads",
    "pin_memory": "there is no device to copy to",
    "generator": "rng",
    "target_size": "shape",
    "image_size": "shape",
    "size": "shape",
    **dict.fromkeys(
        ("color", "color_mode", "grayscale", "loader", "mode"),
        "images have three channels; shape=(1, height, width) of data_iterator_image_folder makes them gray",
    ),
    "delimiter": "cells are separated by commas; numpy.loadtxt reads other files",
    "sep": "cells are separated by commas; numpy.loadtxt reads other files",
}
"""Arguments of PyTorch's `DataLoader`, Keras and pandas, and what takes their place."""


def data_iterator(
    data_source: DataSource,
    batch_size: int,
    rng: RandomState | None = None,
    use_thread: bool = True,
    with_memory_cache: bool = True,
    with_file_cache: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
    epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
    stop_exhausted: bool = False,
    n_workers: int | None = None,
) -> DataIterator:
    """Iterate over the batches of a data source.

    Args:
        data_source: The source.
        batch_size: Examples in a batch.
        rng: Random generator for the order of the cache. It only seeds the cache's own generator, so that iterators
            with the same `rng` do not affect each other later.
        use_thread: Whether to prefetch in a thread.
        with_memory_cache: Whether to cache the examples in memory if they fit.
        with_file_cache: Whether to cache the examples in files, which are written before the first epoch.
        cache_dir: Folder for the file cache, which is kept; by default a temporary folder. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions called at the start of each epoch, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch.
        n_workers: Number of threads that read examples, as by `DataSourceWithWorkers`; one by default.

    Returns:
        The iterator.
    """
    check_source("data_iterator", data_source)
    if n_workers is not None:
        data_source = DataSourceWithWorkers(data_source, n_workers)
    if with_file_cache or cache_dir is not None:
        data_source = DataSourceWithFileCache(data_source, cache_dir, shuffle=data_source.shuffle, rng=rng)
    if with_memory_cache:
        data_source = DataSourceWithMemoryCache(data_source, data_source.shuffle, _seeded_by(rng))
    return DataIterator(
        data_source, batch_size, None, use_thread, epoch_begin_callbacks, epoch_end_callbacks, stop_exhausted
    )


PASSED_ON = frozenset(signature(data_iterator).parameters) - {"data_source"}
"""Arguments that the functions below pass on to `data_iterator`."""


def _seeded_by(rng: RandomState | None) -> RandomState | None:
    """A new generator seeded by another one, so that threads of several iterators do not share a generator.

    Under NNabla's names it is the other one itself, as in NNabla.
    """
    return rng if rng is None or _core.is_nnabla() else np.random.RandomState(rng.permutation(4096)[:8])


def _iterator_over(source: DataSource, given: dict[str, Any]) -> DataIterator:
    """Calls `data_iterator` with those arguments of a function below that it takes.

    Under NNabla's names the generator is not among them, as in NNabla.
    """
    given = {name: value for name, value in given.items() if name in PASSED_ON}
    return data_iterator(source, **given | ({"rng": None} if _core.is_nnabla() else {}))


def _of_function(make: _F) -> _F:
    """The function, with an error for arrays in place of a loading function."""

    @functools.wraps(make)
    def checked(load_func: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Refuses what is no function, and calls the function."""
        if not callable(load_func):
            hint = "for arrays x and t write data_iterator_simple(lambda i: (x[i], t[i]), len(x), batch_size)"
            if hasattr(load_func, "__getitem__") and not isinstance(load_func, (tuple, list, dict, np.ndarray)):
                hint = "write data_iterator_simple(lambda i: dataset[i], len(dataset), batch_size)"
            of = type(load_func).__name__
            raise CallError(
                f"data_iterator_simple: expected `load_func` to be a function of the number of an example, got {of}; "
                f"{hint}"
            )
        return make(load_func, *args, **kwargs)

    return checked  # type: ignore[return-value]


@_of_function
@explained("data_iterator_simple", ELSEWHERE)
def data_iterator_simple(
    load_func: Callable[[int], Sequence[Any]],
    num_examples: int,
    batch_size: int,
    shuffle: bool = False,
    rng: RandomState | None = None,
    use_thread: bool = True,
    with_memory_cache: bool = False,
    with_file_cache: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
    epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
    stop_exhausted: bool = False,
) -> DataIterator:
    """Iterate over the batches of examples that a function loads.

    Args:
        load_func: Function from an example's index to a tuple of its arrays. The iterator's thread calls it.
        num_examples: Number of examples.
        batch_size: Examples in a batch.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        use_thread: Whether to prefetch in a thread.
        with_memory_cache: Whether to cache the examples in memory if they fit.
        with_file_cache: Whether to cache the examples in files, which are written before the first epoch.
        cache_dir: Folder for the file cache, which is kept; by default a temporary folder. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions called at the start of each epoch, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    given = locals()
    return _iterator_over(SimpleDataSource(load_func, num_examples, shuffle, rng), given)


def data_iterator_concat_datasets(
    data_source_list: Sequence[DataSource],
    batch_size: int,
    shuffle: bool = False,
    rng: RandomState | None = None,
    use_thread: bool = True,
    with_memory_cache: bool = True,
    with_file_cache: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
    epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
    stop_exhausted: bool = False,
) -> DataIterator:
    """Iterate over the batches of several sources, one after the other.

    Args:
        data_source_list: The sources.
        batch_size: Examples in a batch.
        shuffle: Whether to shuffle the examples of all sources, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        use_thread: Whether to prefetch in a thread.
        with_memory_cache: Whether to cache the examples in memory if they fit.
        with_file_cache: Whether to cache the examples in files, which are written before the first epoch.
        cache_dir: Folder for the file cache, which is kept; by default a temporary folder. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions called at the start of each epoch, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    given = locals()
    return _iterator_over(ConcatDataSource(data_source_list, shuffle, rng), given)


@explained("data_iterator_csv_dataset", ELSEWHERE)
def data_iterator_csv_dataset(
    uri: str | os.PathLike[str],
    batch_size: int,
    shuffle: bool = False,
    rng: RandomState | None = None,
    use_thread: bool = True,
    normalize: bool = True,
    with_memory_cache: bool = True,
    with_file_cache: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
    epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
    stop_exhausted: bool = False,
    n_workers: int | None = None,
) -> DataIterator:
    """Iterate over the batches of a data set in a CSV file.

    Args:
        uri: Path of the file; see `CsvDataSource` for its format.
        batch_size: Examples in a batch.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        use_thread: Whether to prefetch in a thread.
        normalize: Whether to divide pixels by the largest value of their type, so that they are in [0, 1].
        with_memory_cache: Whether to cache the examples in memory if they fit.
        with_file_cache: Whether to cache the examples in files, which are written before the first epoch. With None
            there is no cache, but under NNabla's names the examples come in the order of a cache.
        cache_dir: Folder for the file cache, which is kept for `data_iterator_cache`; by default a temporary folder. It
            implies `with_file_cache`.
        epoch_begin_callbacks: Functions called at the start of each epoch, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch.
        n_workers: Number of threads that read examples; one by default.

    Returns:
        The iterator.
    """
    given = locals()
    source = CsvDataSource(uri, shuffle, rng, normalize)
    as_in_files = with_file_cache is None and cache_dir is None and _core.is_nnabla()
    return _iterator_over(DataSourceInOrderOfFiles(source, shuffle) if as_in_files else source, given)


@explained("data_iterator_image_folder", ELSEWHERE)
def data_iterator_image_folder(
    folder: str | os.PathLike[str],
    batch_size: int,
    shape: Sequence[int] | None = None,
    shuffle: bool = False,
    rng: RandomState | None = None,
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    n_workers: int | None = None,
    with_memory_cache: bool = False,
    stop_exhausted: bool = False,
) -> DataIterator:
    """Batches of images in folders, one folder for each class, which several threads read.

    Args:
        folder: Path of the folder, as `ImageFolderDataSource` takes it.
        batch_size: Examples in a batch.
        shape: Channels, height and width of the images; by default three channels and their own size.
        shuffle: True for a random order, a new one in each epoch.
        rng: Generator of the orders; `RandomState(313)` if it is None.
        transform: Function of each image, such as a random crop. It is called in several threads.
        n_workers: Number of threads; by default the library's number.
        with_memory_cache: True to keep the images after `transform` in memory if they fit.
        stop_exhausted: True to stop after one epoch.

    Returns:
        The iterator, whose batches are images, shape (batch_size, channels, height, width), and numbers of classes,
        shape (batch_size, 1).

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from kinnor.files.images import write_image
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / name).mkdir()
        ...     write_image(folder / name / "1.png", np.zeros((8, 6, 3), np.uint8))
        >>> with data_iterator_image_folder(folder, 2, shape=(3, 4, 4)) as batches:
        ...     x, y = batches.next()
        >>> x.shape, y.tolist()
        ((2, 3, 4, 4), [[0], [1]])
    """
    source: DataSource = ImageFolderDataSource(folder, shape, shuffle, rng)
    if transform is not None:
        function = _check.callee("data_iterator_image_folder", "transform", transform)
        source = source.map(lambda x, y: (function(x), y))
    return data_iterator(
        source,
        batch_size,
        rng,
        with_memory_cache=with_memory_cache,
        stop_exhausted=stop_exhausted,
        n_workers=_core.get_num_threads() if n_workers is None else n_workers,
    )


def data_iterator_cache(
    uri: str | os.PathLike[str],
    batch_size: int,
    shuffle: bool = False,
    rng: RandomState | None = None,
    use_thread: bool = True,
    normalize: bool = True,
    with_memory_cache: bool = True,
    epoch_begin_callbacks: Sequence[Callable[[int], object]] = (),
    epoch_end_callbacks: Sequence[Callable[[int], object]] = (),
    stop_exhausted: bool = False,
) -> DataIterator:
    """Iterate over the batches of a data set in a folder of arrays, which `kinnor conv_dataset` writes.

    Args:
        uri: Path of the folder.
        batch_size: Examples in a batch.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        use_thread: Whether to prefetch in a thread.
        normalize: Whether to divide pixels by the largest value of their type, so that they are in [0, 1].
        with_memory_cache: Whether to cache the examples in memory if they fit.
        epoch_begin_callbacks: Functions called at the start of each epoch, with its number.
        epoch_end_callbacks: Functions called at the end of each epoch, with its number.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    given = locals()
    return _iterator_over(CacheDataSource(uri, shuffle, rng, normalize), given)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
