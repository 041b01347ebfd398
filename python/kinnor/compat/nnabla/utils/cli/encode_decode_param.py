"""NNabla's commands for parameters as text, which are those of `kinnor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinnor import Variable
from kinnor.cli.text import read, write
from kinnor.parameter import set_parameter

from .commands import add, run

__all__ = [
    "add_decode_param_command",
    "add_encode_param_command",
    "decode_param_command",
    "encode_param_command",
    "load_param_in_txt",
    "save_param_in_txt",
]


def add_decode_param_command(subparsers: Any) -> None:
    """Add the command `decode_param` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "decode_param", decode_param_command)


def decode_param_command(args: Any) -> bool:
    """Run the command `decode_param`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("decode_param", args)


def add_encode_param_command(subparsers: Any) -> None:
    """Add the command `encode_param` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.
    """
    add(subparsers, "encode_param", encode_param_command)


def encode_param_command(args: Any) -> bool:
    """Run the command `encode_param`.

    Args:
        args: Its arguments as attributes, such as parsing gives; those that are not there have their defaults.

    Returns:
        True.

    Raises:
        CallError: If one is missing that must be given.
        OSError: If a file cannot be read or written.
    """
    return run("encode_param", args)


def load_param_in_txt(name: str, filepath: str) -> None:
    """Make a parameter of a text file, in the current parameter scope.

    Args:
        name: The parameter's name.
        filepath: Path of the file: the shape in the first line, a number in each of the others.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If it cannot be read.
    """
    set_parameter(name, Variable.from_numpy_array(read(Path(filepath)), need_grad=True))


def save_param_in_txt(x: Any, filepath: str) -> None:
    """Write an array as a text file: the shape in the first line, a number in each of the others.

    Args:
        x: The array.
        filepath: Path of the file.

    Raises:
        OSError: If it cannot be written.
    """
    write(Path(filepath), x)
