"""NNabla's commands that plot. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_plot_series_command", "add_plot_timer_command", "plot_series_command", "plot_timer_command"]


def add_plot_series_command(subparsers: Any) -> None:
    """Add the command `plot_series` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "plot_series", plot_series_command)


def plot_series_command(args: Any) -> bool:
    """Run the command `plot_series`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("plot_series", args)


def add_plot_timer_command(subparsers: Any) -> None:
    """Add the command `plot_timer` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "plot_timer", plot_timer_command)


def plot_timer_command(args: Any) -> bool:
    """Run the command `plot_timer`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("plot_timer", args)
