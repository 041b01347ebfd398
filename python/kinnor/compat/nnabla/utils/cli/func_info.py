"""NNabla's command that lists functions, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_function_info_command", "function_info_command"]


def add_function_info_command(subparsers: Any) -> None:
    """Add the command `function_info` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "function_info", function_info_command)


def function_info_command(args: Any) -> bool:
    """Run the command `function_info`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("function_info", args)
