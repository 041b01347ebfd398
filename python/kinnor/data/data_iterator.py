"""Data iterators: of a source, of a function that loads examples, of files. `DataIterator` itself is in `batches`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _check, _core
from .batches import DataIterator
from .cache_data_source import DataSourceInOrderOfFiles, DataSourceWithFileCache
from .data_source import DataSource, DataSourceWithMemoryCache, check_source
from .data_source_implements import CacheDataSource, ConcatDataSource, CsvDataSource, SimpleDataSource
from .image_folder import ImageFolderDataSource
from .workers import DataSourceWithWorkers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

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
    """Batches of a source of your own.

    Args:
        data_source: The source.
        batch_size: Examples in a batch.
        rng: What the order of the cache is drawn from: the seed of its own generator, at once, so that iterators that
            share one do not change each other's orders later.
        use_thread: Whether to read ahead in a thread.
        with_memory_cache: Whether to keep the examples in memory if they fit.
        with_file_cache: Whether to keep the examples in files, which are read from the first epoch on.
        cache_dir: The folder for these files, which stay there; otherwise they are temporary. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
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
        data_source = DataSourceWithMemoryCache(data_source, data_source.shuffle, _own(rng))
    return DataIterator(
        data_source, batch_size, None, use_thread, epoch_begin_callbacks, epoch_end_callbacks, stop_exhausted
    )


def _own(rng: RandomState | None) -> RandomState | None:
    """A generator that is seeded by another one: threads of several iterators may draw from theirs at any time.

    Under NNabla's names it is the other one itself, from which NNabla draws.
    """
    return rng if rng is None or _core.unwary() else np.random.RandomState(rng.permutation(4096)[:8])


def _of_helper(rng: RandomState | None) -> RandomState | None:
    """What the functions below hand on to `data_iterator`: the generator, which NNabla's do not hand on."""
    return None if _core.unwary() else rng


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
    """Batches of examples that a function loads.

    Args:
        load_func: Takes the index of an example, from 0, and returns a tuple of its arrays. It is called in the
            iterator's thread.
        num_examples: Number of examples.
        batch_size: Examples in a batch.
        shuffle: Whether the examples come in random order, a new one in each epoch.
        rng: What the order is drawn from; `RandomState(313)` if it is None.
        use_thread: Whether to read ahead in a thread.
        with_memory_cache: Whether to keep the examples in memory if they fit.
        with_file_cache: Whether to keep the examples in files, which are read from the first epoch on.
        cache_dir: The folder for these files, which stay there; otherwise they are temporary. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    return data_iterator(
        SimpleDataSource(load_func, num_examples, shuffle, rng),
        batch_size,
        _of_helper(rng),
        use_thread,
        with_memory_cache,
        with_file_cache,
        cache_dir,
        epoch_begin_callbacks,
        epoch_end_callbacks,
        stop_exhausted,
    )


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
    """Batches of several sources, one after the other, as one.

    Args:
        data_source_list: The sources.
        batch_size: Examples in a batch.
        shuffle: Whether the examples of all of them come in random order, a new one in each epoch.
        rng: What the order is drawn from; `RandomState(313)` if it is None.
        use_thread: Whether to read ahead in a thread.
        with_memory_cache: Whether to keep the examples in memory if they fit.
        with_file_cache: Whether to keep the examples in files, which are read from the first epoch on.
        cache_dir: The folder for these files, which stay there; otherwise they are temporary. It implies
            `with_file_cache`.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    return data_iterator(
        ConcatDataSource(data_source_list, shuffle, rng),
        batch_size,
        _of_helper(rng),
        use_thread,
        with_memory_cache,
        with_file_cache,
        cache_dir,
        epoch_begin_callbacks,
        epoch_end_callbacks,
        stop_exhausted,
    )


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
    """Batches of a data set in a CSV file.

    Args:
        uri: Path of the file; `CsvDataSource` says what is in it.
        batch_size: Examples in a batch.
        shuffle: Whether the examples come in random order, a new one in each epoch.
        rng: What the order is drawn from; `RandomState(313)` if it is None.
        use_thread: Whether to read ahead in a thread.
        normalize: Whether to divide pixels by the largest value, so that they lie within [0, 1].
        with_memory_cache: Whether to keep the examples in memory if they fit.
        with_file_cache: Whether to keep the examples in files, which are read from the first epoch on. If it is None,
            they are not, but under NNabla's names come in the order of files.
        cache_dir: The folder for these files, which stay there, for `data_iterator_cache`; otherwise they are
            temporary. It implies `with_file_cache`.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
        stop_exhausted: Whether to stop after one epoch.
        n_workers: Number of threads that read examples; one by default.

    Returns:
        The iterator.
    """
    source: DataSource = CsvDataSource(uri, shuffle, rng, normalize)
    if with_file_cache is None and cache_dir is None and _core.unwary():
        source = DataSourceInOrderOfFiles(source, shuffle)
    return data_iterator(
        source,
        batch_size,
        _of_helper(rng),
        use_thread,
        with_memory_cache,
        bool(with_file_cache),
        cache_dir,
        epoch_begin_callbacks=epoch_begin_callbacks,
        epoch_end_callbacks=epoch_end_callbacks,
        stop_exhausted=stop_exhausted,
        n_workers=n_workers,
    )


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
        n_workers: Number of threads; by default that of the library.
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
    """Batches of a data set in a folder of arrays, which `kinnor conv_dataset` writes.

    Args:
        uri: Path of the folder.
        batch_size: Examples in a batch.
        shuffle: Whether the examples come in random order, a new one in each epoch.
        rng: What the order is drawn from; `RandomState(313)` if it is None.
        use_thread: Whether to read ahead in a thread.
        normalize: Whether to divide pixels by the largest value, so that they lie within [0, 1].
        with_memory_cache: Whether to keep the examples in memory if they fit.
        epoch_begin_callbacks: Functions that are called with the number of an epoch when it begins.
        epoch_end_callbacks: Functions that are called with the number of an epoch when it ends.
        stop_exhausted: Whether to stop after one epoch.

    Returns:
        The iterator.
    """
    return data_iterator(
        CacheDataSource(uri, shuffle, rng, normalize),
        batch_size,
        _of_helper(rng),
        use_thread,
        with_memory_cache,
        epoch_begin_callbacks=epoch_begin_callbacks,
        epoch_end_callbacks=epoch_end_callbacks,
        stop_exhausted=stop_exhausted,
    )
