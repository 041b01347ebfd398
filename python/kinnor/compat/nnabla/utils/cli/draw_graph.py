"""NNabla's command that draws, which is that of `kinnor`."""

from __future__ import annotations

from typing import Any

from .commands import add, run

__all__ = ["add_draw_graph_command", "draw_graph_command"]


def add_draw_graph_command(subparsers: Any) -> None:
    """Add the command `draw_graph` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "draw_graph", draw_graph_command)


def draw_graph_command(args: Any) -> bool:
    """Run the command `draw_graph`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("draw_graph", args)
