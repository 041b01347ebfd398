"""NNabla's command that makes data sets of images. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_create_image_classification_dataset_command", "create_image_classification_dataset_command"]


def add_create_image_classification_dataset_command(subparsers: Any) -> None:
    """Add the command `create_image_classification_dataset` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "create_image_classification_dataset", create_image_classification_dataset_command)


def create_image_classification_dataset_command(args: Any) -> bool:
    """Run the command `create_image_classification_dataset`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("create_image_classification_dataset", args)
