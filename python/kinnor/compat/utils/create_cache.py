"""Conversion of a CSV data set to a folder of arrays, under NNabla's name."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.cache_data_source import write_cache
from ...data.csv_data_source import CsvDataSource
from ...files.atomic import replacing

if TYPE_CHECKING:
    from numpy.random import RandomState

__all__ = ["CreateCache"]


class CreateCache:
    r"""Converts a CSV data set to a folder for `data_iterator_cache`, which is faster to read.

    Args:
        input_csv_filename: Path of the CSV file.
        rng: Random generator of the order; None is `RandomState(313)`.
        shuffle: Whether to write the examples in random order.
        num_of_threads: Without effect.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.csv")
        ...     _ = path.write_text("x,y\n1,2\n3,4\n")
        ...     CreateCache(path).create(Path(folder, "cache"))
        ...     sorted(file.name for file in Path(folder, "cache").glob("*.csv"))
        ['cache_index.csv', 'cache_info.csv', 'order.csv', 'original.csv']
    """

    def __init__(
        self,
        input_csv_filename: str | os.PathLike[str],
        rng: RandomState | None = None,
        shuffle: bool = False,
        num_of_threads: int | None = None,
    ) -> None:
        self._filename = os.fspath(input_csv_filename)
        self._rng, self._shuffle = rng, shuffle

    def create(
        self,
        output_cache_dirname: str | os.PathLike[str],
        normalize: bool = True,
        cache_file_name_prefix: str = "cache",
    ) -> None:
        """Write the folder: the arrays, the CSV file as `original.csv`, and the order of its rows in `order.csv`.

        Args:
            output_cache_dirname: Path of the folder to create.
            normalize: Whether to divide pixels by the largest value of their type, so that they are in [0, 1].
            cache_file_name_prefix: Prefix of the names of array files.

        Raises:
            DataError: If the data set is malformed, or if examples differ in shape.
            OSError: If a file cannot be read or written.
        """
        folder = Path(output_cache_dirname)
        with CsvDataSource(self._filename, self._shuffle, self._rng, normalize) as source:
            write_cache(source, folder, prefix=cache_file_name_prefix)
            order = source.order.tolist()
        with replacing(folder / "order.csv") as temporary, temporary.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(enumerate(order))
        with replacing(folder / "original.csv") as temporary:
            shutil.copyfile(self._filename, temporary)
