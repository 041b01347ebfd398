"""NNabla's command line program as a function. It runs the program `kinnor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor_cli import main as run

if TYPE_CHECKING:
    import argparse

__all__ = ["cli_main", "main", "version_command"]


def main() -> None:
    """Run the program on the arguments of the process.

    Raises:
        SystemExit: With a status other than 0 if the command failed or its arguments are wrong.
    """
    status = run()
    if status:
        sys.exit(status)


def version_command(args: Any) -> None:
    """Print the version.

    Args:
        args: Not used.
    """
    print(f"Version:{kinnor.__version__}")


def cli_main(parser: argparse.ArgumentParser, args: Any) -> None:
    """Run the command of parsed arguments. An error is printed and ends the process.

    Args:
        parser: The parser. Its help is printed if no command was given.
        args: The arguments, with the command as `func`.

    Raises:
        SystemExit: If no command was given, or if it failed.
    """
    if not hasattr(args, "func"):
        parser.print_help(sys.stderr)
        sys.exit(-1)
    try:
        args.func(args)
    except (kinnor.Error, OSError, ImportError, MemoryError) as error:
        sys.exit(f"{parser.prog}: {error}")
