"""NNabla's commands that run networks. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_forward_command", "add_infer_command", "forward_command", "infer_command"]


def add_forward_command(subparsers: Any) -> None:
    """Add the command `forward` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "forward", forward_command)


def forward_command(args: Any) -> bool:
    """Run the command `forward`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("forward", args)


def add_infer_command(subparsers: Any) -> None:
    """Add the command `infer` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "infer", infer_command)


def infer_command(args: Any) -> bool:
    """Run the command `infer`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("infer", args)
