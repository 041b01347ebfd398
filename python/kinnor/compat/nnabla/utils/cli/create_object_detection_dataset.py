"""NNabla's command that makes data sets of images with boxes, which is that of `kinnor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor.cli import detection

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
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "create_object_detection_dataset", create_object_detection_dataset_command)


def create_object_detection_dataset_command(args: Any) -> bool:
    """Run the command `create_object_detection_dataset`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("create_object_detection_dataset", args)


def load_label(file_name: str | os.PathLike[str]) -> list[list[float]]:
    """The boxes in a text beside an image.

    Args:
        file_name: Its path; if there is none, there are no boxes.

    Returns:
        For each the number of its class, its middle, its width and its height.

    Raises:
        DataError: If a line is something else.
        OSError: If the text cannot be read.
    """
    found: list[list[float]] = detection.read_boxes(Path(file_name)).tolist()
    return found


def get_anchors(source_dir: str | os.PathLike[str], file_list: Iterable[str], num_anchor: int) -> NDArray[np.float64]:
    """Sizes of boxes that those of images are like.

    Args:
        source_dir: Path of the folder with the images.
        file_list: Names of the images in it.
        num_anchor: How many sizes.

    Returns:
        Rows of width and height, by area.

    Raises:
        DataError: If there are no boxes, or if a text is malformed.
        OSError: If one cannot be read.
    """
    texts = [Path(source_dir, name).with_suffix(".txt") for name in file_list]
    return detection.anchors_of([box[3:] for text in texts for box in load_label(text)], num_anchor)
