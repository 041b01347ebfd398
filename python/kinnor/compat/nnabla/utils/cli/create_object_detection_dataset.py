"""NNabla's command that makes data sets of images with boxes. Run by the program `kinnor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor.compat.cli import detection

from .commands import add, run

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "add_create_object_detection_dataset_command",
    "create_object_detection_dataset_command",
    "get_anchors",
    "load_label",
]


def add_create_object_detection_dataset_command(subparsers: Any) -> None:
    """Add the command `create_object_detection_dataset` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "create_object_detection_dataset", create_object_detection_dataset_command)


def create_object_detection_dataset_command(args: Any) -> bool:
    """Run the command `create_object_detection_dataset`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("create_object_detection_dataset", args)


def load_label(file_name: str | os.PathLike[str]) -> list[list[float]]:
    """Read the text file with the boxes of an image.

    Args:
        file_name: Path of the text file; a missing file means no boxes.

    Returns:
        For each box: class number, horizontal and vertical center, width, height.

    Raises:
        DataError: If a line is malformed.
        OSError: If the file cannot be read.
    """
    found: list[list[float]] = detection.read_boxes(Path(file_name)).tolist()
    return found


def get_anchors(source_dir: str | os.PathLike[str], file_list: Iterable[str], num_anchor: int) -> NDArray[np.float64]:
    """The anchors of a data set: typical sizes of the boxes of its images.

    Args:
        source_dir: Path of the folder with the images.
        file_list: Names of the images in it.
        num_anchor: Number of anchors.

    Returns:
        Rows of width and height, by area.

    Raises:
        DataError: If there are no boxes, or if a text file is malformed.
        OSError: If a text file cannot be read.
    """
    texts = [Path(source_dir, name).with_suffix(".txt") for name in file_list]
    return detection.anchors_of([box[3:] for text in texts for box in load_label(text)], num_anchor)
