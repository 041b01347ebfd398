"""NNabla's command that lists functions. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_function_info_command", "function_info_command"]


def add_function_info_command(subparsers: Any) -> None:
    """Add the command `function_info` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "function_info", function_info_command)


def function_info_command(args: Any) -> bool:
    """Run the command `function_info`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("function_info", args)
