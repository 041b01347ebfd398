"""NNabla's command that makes caches of data sets. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_conv_dataset_command", "conv_dataset_command"]


def add_conv_dataset_command(subparsers: Any) -> None:
    """Add the command `conv_dataset` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "conv_dataset", conv_dataset_command)


def conv_dataset_command(args: Any) -> bool:
    """Run the command `conv_dataset`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("conv_dataset", args)
