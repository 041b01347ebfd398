"""NNabla's commands that convert and show files. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_convert_command", "convert_command", "dump_command"]


def add_convert_command(subparsers: Any) -> None:
    """Add the commands `convert` and `dump` with their arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "convert", convert_command)
    add(subparsers, "dump", dump_command)


def convert_command(args: Any) -> bool:
    """Run the command `convert`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("convert", args)


def dump_command(args: Any) -> bool:
    """Run the command `dump`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("dump", args)
