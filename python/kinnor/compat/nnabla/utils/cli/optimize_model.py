"""NNabla's command that makes networks smaller. Run by the program `kinnor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from kinnor import UnsupportedError
from kinnor.compat.cli.optimize import optimize

from .commands import add, run

__all__ = ["add_optimize_command", "optimization_command", "optimize_nnp_model_command", "optimize_pb_model_command"]


def add_optimize_command(subparsers: Any) -> None:
    """Add the command `optimize` with its arguments.

    Args:
        subparsers: The result of `ArgumentParser.add_subparsers`.
    """
    add(subparsers, "optimize", optimization_command)


def optimization_command(args: Any) -> bool:
    """Run the command `optimize`.

    Args:
        args: `input_file` and `output_file`, each a list with one path.

    Returns:
        True.

    Raises:
        UnsupportedError: If the file is a TensorFlow file.
        CallError: If a path is missing.
        OSError: If a file cannot be read or written.
    """
    given = getattr(args, "input_file", [""])
    if Path(given[0]).suffix == ".pb":
        optimize_pb_model_command(given[0], "")
    return run("optimize", args)


def optimize_nnp_model_command(input_file: str, output_file: str) -> None:
    """Replace matrix products with parameters by affine layers in the networks of a file.

    Args:
        input_file: Path of a `.nnp` file.
        output_file: Path of the file to write.

    Raises:
        NetworkError: If the file is malformed.
        OSError: If a file cannot be read or written.
    """
    optimize(input_file, output_file)


def optimize_pb_model_command(input_pb_file: str, output_pb_file: str) -> NoReturn:
    """Raise `UnsupportedError`: Kinnor does not read files of TensorFlow.

    Args:
        input_pb_file: Without effect.
        output_pb_file: Without effect.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(f"optimize: expected a name that ends in .nnp, got {input_pb_file!r} of TensorFlow")
