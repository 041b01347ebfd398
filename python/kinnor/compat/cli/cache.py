"""`kinnor conv_dataset`: converts data sets to folders of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...cli import wrote
from ...data.cache_data_source import CacheDataSource, write_cache
from ...data.csv_data_source import CsvDataSource
from ...data.data_source import DataError
from ...files.atomic import replacing_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "convert"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("source", help="data set: a CSV file, or a folder of arrays whose name ends in .cache")
    parser.add_argument("destination", help="folder to create")
    parser.add_argument("-F", "--force", action="store_true", help="replace an existing folder")
    parser.add_argument("-S", "--shuffle", action="store_true", help="shuffle the examples")
    parser.add_argument("-N", "--normalize", action="store_true", help="divide pixels by the largest value")
    parser.add_argument("-t", "--num_of_threads", type=int, help="without effect")
    return lambda args: wrote(
        args.destination,
        f"{convert(args.source, args.destination, args.force, args.shuffle, args.normalize)} examples",
    )


def convert(source: str, destination: str, force: bool = False, shuffle: bool = False, normalize: bool = False) -> int:
    """Write a data set as a folder of arrays, whole or not at all.

    Args:
        source: Path of a CSV file, or of such a folder.
        destination: Path of the folder to create.
        force: Whether to replace a folder that this command wrote earlier.
        shuffle: Whether to shuffle the examples.
        normalize: Whether to divide pixels by the largest value.

    Returns:
        Number of examples.

    Raises:
        DataError: If the data set is malformed, or if the folder exists.
        OSError: If a file cannot be read or written.
    """
    target = Path(destination)
    if target.exists() and not (force and (target / "cache_index.csv").is_file()):
        raise DataError(f"expected a new folder, or an existing data set and --force, got {destination!r}")
    kind = CacheDataSource if Path(source).is_dir() else CsvDataSource
    with replacing_folder(target) as part, kind(source, shuffle=shuffle, normalize=normalize) as found:
        write_cache(found, part)
        size: int = found.size
    return size
