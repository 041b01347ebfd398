"""NNabla's command that makes caches of data sets, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_conv_dataset_command", "conv_dataset_command"]


def add_conv_dataset_command(subparsers: Any) -> None:
    """Add the command `conv_dataset` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "conv_dataset", conv_dataset_command)


def conv_dataset_command(args: Any) -> bool:
    """Run the command `conv_dataset`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("conv_dataset", args)
