"""NNabla's commands that convert and show files, which are those of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_convert_command", "convert_command", "dump_command"]


def add_convert_command(subparsers: Any) -> None:
    """Add the commands `convert` and `dump` with their arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "convert", convert_command)
    add(subparsers, "dump", dump_command)


def convert_command(args: Any) -> bool:
    """Run the command `convert`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("convert", args)


def dump_command(args: Any) -> bool:
    """Run the command `dump`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("dump", args)
