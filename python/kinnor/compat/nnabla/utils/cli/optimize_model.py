"""NNabla's command that makes networks smaller, for its own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kinnor import CallError, UnsupportedError, graph_def
from kinnor.graph_def import NetworkError

from ..converter.nnabla.optimizer import optimize_nnp

if TYPE_CHECKING:
    import os

__all__ = ["add_optimize_command", "optimization_command", "optimize_nnp_model_command", "optimize_pb_model_command"]


def optimize_nnp_model_command(input_file: str | os.PathLike[str], output_file: str | os.PathLike[str]) -> None:
    """Write the networks of a file with affine layers where the first multiplies by parameters.

    Args:
        input_file: Path of a `.nnp` file.
        output_file: Path of the file to write.

    Raises:
        NetworkError: If the file is malformed.
        OSError: If a file cannot be read or written.
    """
    graph = graph_def.load(input_file)
    network = optimize_nnp(graph)
    graph.networks[network.name] = network
    graph.save(output_file, variable_batch_size=False)


def optimize_pb_model_command(input_pb_file: str, output_pb_file: str) -> NoReturn:
    """Refuse: files of TensorFlow are not read.

    Args:
        input_pb_file: Without effect.
        output_pb_file: Without effect.

    Raises:
        UnsupportedError: In any case.
    """
    raise UnsupportedError(f"optimize: expected a name that ends in .nnp, got {input_pb_file!r} of TensorFlow")


def optimization_command(args: Any) -> None:
    """Run the command `optimize`.

    Args:
        args: `input_file` and `output_file`, each a list with one path.

    Raises:
        UnsupportedError: If the file is one of TensorFlow's.
        NetworkError: If it is one of another format, or malformed.
        OSError: If a file cannot be read or written.
    """
    source, target = args.input_file[0], args.output_file[0]
    if Path(source).suffix == ".pb":
        optimize_pb_model_command(source, target)
    for path in (source, target):
        if Path(path).suffix != ".nnp":
            raise NetworkError(f"optimize: expected a name that ends in .nnp, got {path!r}")
    optimize_nnp_model_command(source, target)


def add_optimize_command(subparsers: Any) -> None:
    """Add the command `optimize` with its arguments.

    Args:
        subparsers: What `add_subparsers` of a parser gave.

    Raises:
        CallError: If it is something else.
    """
    if not hasattr(subparsers, "add_parser"):
        raise CallError(f"optimize: expected what `ArgumentParser.add_subparsers` gives, got {subparsers!r}")
    parser = subparsers.add_parser("optimize", help="write a network with affine layers where it multiplies by weights")
    parser.add_argument("input_file", nargs=1, help="a .nnp file")
    parser.add_argument("output_file", nargs=1, help="the .nnp file to write")
    parser.set_defaults(func=optimization_command)
