"""`kinnor plot_series` and `kinnor plot_timer`: plot the files of monitors with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import monitor
from .._core import ArgumentError
from ..files.atomic import replacing
from ..files.packages import needed
from . import wrote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command.

    Args:
        name: `plot_series` or `plot_timer`.
        parser: The parser of the command.
    """
    parser.add_argument("inputs", nargs="+", metavar="FILE", help="files written by monitors")
    parser.add_argument("-l", "--label", action="append", help="label of a line; one for each file, or none")
    parser.add_argument("-o", "--outfile", default="", help="picture to write; without it a window opens")
    parser.add_argument("-x", "--xlabel", default="", help="label of the horizontal axis")
    parser.add_argument("-y", "--ylabel", default="", help="label of the vertical axis")
    parser.add_argument("-t", "--title", default="", help="title")
    for side, flag, text in (("ylim-max", "-T", "top"), ("ylim-min", "-B", "bottom"), ("xlim-max", "-R", "right"),
                             ("xlim-min", "-L", "left")):  # fmt: skip
        parser.add_argument(flag, f"--{side}", type=float, help=f"number at the {text} end")
    if name == "plot_timer":
        parser.add_argument("-e", "--elapsed", action="store_true", help="time since the start, not of each iteration")
        parser.add_argument("-u", "--time-unit", default="s", choices=("s", "m", "h", "d"), help="unit of time")
        return lambda args: _plot(args, lambda path, how: monitor.plot_time_elapsed(
            path, args.elapsed, args.time_unit, how))  # fmt: skip
    return lambda args: _plot(args, monitor.plot_series)


def _plot(args: Any, draw: Callable[[str, dict[str, Any]], None]) -> None:
    """Plot the input files with `draw`, and save or show the figure."""
    if args.outfile:
        needed("plot", "matplotlib", "pictures", "plot").use("Agg")
    plt = needed("plot", "matplotlib.pyplot", "pictures", "plot")
    labels = args.label or args.inputs
    if len(labels) != len(args.inputs):
        raise ArgumentError(f"plot: expected {len(args.inputs)} labels, got {len(labels)}")
    plt.figure()
    try:
        for path, label in zip(args.inputs, labels, strict=True):
            try:
                draw(path, {"label": label})
            except (ValueError, IndexError) as error:
                raise ArgumentError(f"plot: expected a file written by a monitor, got {path}: {error}") from error
        plt.title(args.title)
        plt.xlabel(args.xlabel)
        plt.ylabel(args.ylabel)
        plt.xlim(args.xlim_min, args.xlim_max)
        plt.ylim(args.ylim_min, args.ylim_max)
        plt.legend()
        plt.grid()
        if not args.outfile:
            plt.show()
            return
        with replacing(args.outfile) as temporary:
            plt.savefig(temporary, format=Path(args.outfile).suffix.lstrip(".") or "png")
        wrote(args.outfile)
    finally:
        plt.close()
