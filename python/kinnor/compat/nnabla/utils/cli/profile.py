"""NNabla's command that measures, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_profile_command", "profile_command"]


def add_profile_command(subparsers: Any) -> None:
    """Add the command `profile` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "profile", profile_command)


def profile_command(args: Any) -> bool:
    """Run the command `profile`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("profile", args)
