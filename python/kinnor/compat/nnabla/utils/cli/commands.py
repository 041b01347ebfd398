"""NNabla's commands as functions: each runs the command of the program `kinnor` that has its name."""

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
        subparsers: What `add_subparsers` of a parser gave.
        name: The command's name.
        command: What runs it; the parsed arguments have it as `func`.

    Raises:
        CallError: If it is something else.
    """
    if not hasattr(subparsers, "add_parser"):
        raise CallError(f"{name}: expected what `ArgumentParser.add_subparsers` gives, got {subparsers!r}")
    parser = subparsers.add_parser(name, help=COMMANDS[name][1])
    _arguments(name, parser)
    parser.set_defaults(func=command)


def run(name: str, args: Any) -> bool:
    """Run a command.

    Args:
        name: Its name.
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    parser = argparse.ArgumentParser(prog=name, add_help=False)
    command = _arguments(name, parser)
    given = argparse.Namespace()
    for action in parser._actions:  # There is no other way to ask a parser what it takes.
        needed = action.required and not hasattr(args, action.dest)
        if needed:
            raise CallError(f"{name}: expected arguments with `{action.dest}`, got {args!r}")
        setattr(given, action.dest, getattr(args, action.dest, action.default))
    command(given)
    return True


def _arguments(name: str, parser: argparse.ArgumentParser) -> Any:
    return import_module(f"kinnor.cli.{COMMANDS[name][0]}").add(name, parser)
