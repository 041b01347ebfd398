"""NNabla's commands as functions. Each runs the command of the same name of the program `kinnor`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from kinnor import CallError
from kinnor_cli import COMMANDS

__all__ = ["add", "run"]


def add(subparsers: Any, name: str, command: Any) -> None:
    """Add a command with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
        name: The command's name.
        command: The function that runs the command. Parsed arguments have it as `func`.

    Raises:
        CallError: If `subparsers` is something else.
    """
    if not hasattr(subparsers, "add_parser"):
        raise CallError(f"{name}: expected the result of `ArgumentParser.add_subparsers`, got {subparsers!r}")
    parser = subparsers.add_parser(name, help=COMMANDS[name][1])
    _arguments(name, parser)
    parser.set_defaults(func=command)


def run(name: str, args: Any) -> bool:
    """Run a command.

    Args:
        name: The command's name.
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    parser = argparse.ArgumentParser(prog=name, add_help=False)
    command = _arguments(name, parser)
    given = argparse.Namespace()
    for action in parser._actions:  # argparse has no public list of a parser's arguments.
        needed = action.required and not hasattr(args, action.dest)
        if needed:
            raise CallError(f"{name}: expected arguments with `{action.dest}`, got {args!r}")
        setattr(given, action.dest, getattr(args, action.dest, action.default))
    command(given)
    return True


def _arguments(name: str, parser: argparse.ArgumentParser) -> Any:
    """Add the arguments of a command to a parser. Returns the function that runs the command."""
    return import_module(f"kinnor.{COMMANDS[name][0]}").add(name, parser)
