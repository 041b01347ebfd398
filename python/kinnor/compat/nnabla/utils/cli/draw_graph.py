"""NNabla's command that draws. Run by the program `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_draw_graph_command", "draw_graph_command"]


def add_draw_graph_command(subparsers: Any) -> None:
    """Add the command `draw_graph` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "draw_graph", draw_graph_command)


def draw_graph_command(args: Any) -> bool:
    """Run the command `draw_graph`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("draw_graph", args)
