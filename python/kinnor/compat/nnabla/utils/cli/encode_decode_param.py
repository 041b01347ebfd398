"""NNabla's commands for parameters as text. Run by the program `kinnor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinnor import Variable
from kinnor.compat.cli.text import read, write
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
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "decode_param", decode_param_command)


def decode_param_command(args: Any) -> bool:
    """Run the command `decode_param`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("decode_param", args)


def add_encode_param_command(subparsers: Any) -> None:
    """Add the command `encode_param` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "encode_param", encode_param_command)


def encode_param_command(args: Any) -> bool:
    """Run the command `encode_param`.

    Args:
        args: The arguments as attributes, as `parse_args` returns them. Missing ones have their defaults.

    Returns:
        True.

    Raises:
        CallError: If a required argument is missing.
        OSError: If a file cannot be read or written.
    """
    return run("encode_param", args)


def load_param_in_txt(name: str, filepath: str) -> None:
    """Read a text file into a parameter of the current scope.

    Args:
        name: The parameter's name.
        filepath: Path of the file: the shape in the first line, a number in each further line.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If it cannot be read.
    """
    set_parameter(name, Variable.from_numpy_array(read(Path(filepath)), need_grad=True))


def save_param_in_txt(x: Any, filepath: str) -> None:
    """Write an array as a text file: the shape in the first line, a number in each further line.

    Args:
        x: The array.
        filepath: Path of the file.

    Raises:
        OSError: If it cannot be written.
    """
    write(Path(filepath), x)
