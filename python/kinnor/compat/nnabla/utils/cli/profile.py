"""NNabla's command that measures. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_profile_command", "profile_command"]


def add_profile_command(subparsers: Any) -> None:
    """Add the command `profile` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "profile", profile_command)


def profile_command(args: Any) -> bool:
    """Run the command `profile`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("profile", args)
