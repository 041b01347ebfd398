"""`kinnor optimize`: rewrites networks to use fewer functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import nnp
from ...cli import wrote
from ...cli.formats import FormatError
from ..utils.affine import with_affine_layers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "optimize"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: `optimize`.
        parser: The parser of the command.
    """
    parser.add_argument("input_file", nargs=1, help="a .nnp file")
    parser.add_argument("output_file", nargs=1, help="the .nnp file to write")
    return lambda args: optimize(args.input_file[0], args.output_file[0])


def optimize(source: str, target: str) -> None:
    """Replace matrix products with parameters by affine layers in the networks of a file.

    Args:
        source: Path of a `.nnp` file.
        target: Path of the file to write.

    Raises:
        FormatError: If a path has another extension.
        NetworkError: If the file is malformed.
        OSError: If a file cannot be read or written.
    """
    for path in (source, target):
        if Path(path).suffix != ".nnp":
            raise FormatError(f"expected a name that ends in .nnp, got {path!r}")
    graph = nnp.load(source)
    for name, network in graph.networks.items():
        graph.networks[name] = with_affine_layers(network)
    graph.save(target, variable_batch_size=False)
    wrote(target)
