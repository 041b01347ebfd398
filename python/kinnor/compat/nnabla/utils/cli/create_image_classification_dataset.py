"""NNabla's command that makes data sets of images, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_create_image_classification_dataset_command", "create_image_classification_dataset_command"]


def add_create_image_classification_dataset_command(subparsers: Any) -> None:
    """Add the command `create_image_classification_dataset` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "create_image_classification_dataset", create_image_classification_dataset_command)


def create_image_classification_dataset_command(args: Any) -> bool:
    """Run the command `create_image_classification_dataset`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("create_image_classification_dataset", args)
