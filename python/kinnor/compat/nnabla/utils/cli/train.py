"""NNabla's command for training, run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_train_command", "train_command"]


def add_train_command(subparsers: Any) -> None:
    """Add the command `train` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "train", train_command)


def train_command(args: Any) -> bool:
    """Run the command `train`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("train", args)
