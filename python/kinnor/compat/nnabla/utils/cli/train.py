"""NNabla's command for training, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_train_command", "train_command"]


def add_train_command(subparsers: Any) -> None:
    """Add the command `train` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "train", train_command)


def train_command(args: Any) -> bool:
    """Run the command `train`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("train", args)
