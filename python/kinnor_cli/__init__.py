"""The program `kinnor`, which NNabla calls `nnabla_cli`: the list of commands, and how errors are reported.

It is no part of the package `kinnor`, which takes longer to import than a list of commands may take to be shown: a
command imports it when it runs.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # As in `typing`, whose import would take half of the time of a help text.
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "train": ("compat.cli.train", "train the network of a project file"),
    "forward": ("compat.cli.forward", "run a network on a CSV data set, and write its outputs as another one"),
    "infer": ("compat.cli.forward", "run a network on files of numbers"),
    "convert": ("cli.convert", "convert files of networks and parameters"),
    "dump": ("cli.convert", "show networks, inputs, outputs and parameters of a file"),
    "optimize": ("compat.cli.optimize", "merge matrix products and the sums after them into affine layers"),
    "profile": ("compat.cli.measure", "measure how long each function of a network takes"),
    "draw": ("cli.draw", "draw networks as SVG pictures or HTML pages"),
    "draw_graph": ("cli.draw", "the same as draw, under NNabla's name"),
    "plot_series": ("cli.plot", "plot the curves that a MonitorSeries wrote"),
    "plot_timer": ("cli.plot", "plot the times that a MonitorTimeElapsed wrote"),
    "create_image_classification_dataset": (
        "compat.cli.images",
        "make a CSV data set from a folder of images for each class",
    ),
    "create_object_detection_dataset": (
        "compat.cli.detection",
        "make a CSV data set from images with boxes of objects",
    ),
    "digits": ("cli.digits", "write Kinnor's digits as a folder of images for each class"),
    "conv_dataset": ("compat.cli.cache", "convert a CSV data set into arrays that are read faster"),
    "encode_param": ("compat.cli.text", "make a file of parameters from text files"),
    "decode_param": ("compat.cli.text", "write parameters as text files"),
    "function_info": ("compat.cli.functions", "list all functions, or the functions of a file"),
    "version": ("cli.facts", "show the version"),
    "info": ("cli.facts", "show versions, instruction set, threads and other settings"),
}
"""The module below `kinnor` and the summary of each command."""

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: The words after the program's name; by default the arguments of the process.

    Returns:
        The exit status: 0, 1 if a command failed, 2 if it was misused, 130 if it was interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if given else MISUSED
    if given[0] == "--version":
        given[0] = "version"
    if given[0] not in COMMANDS:
        return _fail(f"expected a command, got {given[0]!r}{_nearest(given[0])}; `kinnor --help` lists them", MISUSED)
    return _run(given[0], given[1:])


def _run(name: str, given: Sequence[str]) -> int:
    """Runs a command with its arguments. Returns the exit status; errors are printed in one line."""
    import argparse
    from importlib import import_module

    from kinnor import Error

    module, help_text = COMMANDS[name]
    command = import_module(f"kinnor.{module}")
    parser = argparse.ArgumentParser(prog=f"kinnor {name}", description=f"{help_text[0].upper()}{help_text[1:]}.")
    run = command.add(name, parser)
    try:
        run(parser.parse_args(given))
    except SystemExit as done:
        return int(done.code or 0)
    except KeyboardInterrupt:
        return _fail(f"{name}: interrupted", INTERRUPTED)
    except (Error, OSError, ImportError, MemoryError) as error:
        return _fail(f"{name}: {_line(error)}", FAILED)
    return 0


def _nearest(name: str) -> str:
    """The command that was probably meant, as the end of a message."""
    from difflib import get_close_matches

    found = get_close_matches(name, COMMANDS, 1, 0.7)
    return f"; did you mean {found[0]!r}?" if found else ""


def _line(error: BaseException) -> str:
    """An error in one line."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def _fail(text: str, status: int) -> int:
    """Prints an error and returns the status."""
    print(f"kinnor: {text}", file=sys.stderr)
    return status


def _help() -> str:
    """Returns the list of commands."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return f"usage: kinnor COMMAND ...\n\nCommands; `kinnor COMMAND --help` shows its arguments:\n\n{commands}"
