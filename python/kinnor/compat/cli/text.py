"""`kinnor decode_param` and `kinnor encode_param`: convert parameters to text files and back.

Each parameter has a file of its own. The first line is the shape, each further line a number. The file name is the
parameter's, with `~` instead of slashes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from ..._core import ParameterError
from ...cli import wrote
from ...files import network_file, parameter_file
from ...files.atomic import replacing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["add", "decode", "encode", "read", "write"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command.

    Args:
        name: `decode_param` or `encode_param`.
        parser: The parser of the command.
    """
    parser.add_argument("-p", "--param", required=True, help="file of parameters")
    if name == "decode_param":
        parser.add_argument("-o", "--outdir", required=True, help="folder for text files")
        return lambda args: wrote(args.outdir, f"{decode(args.param, args.outdir)} text files")
    parser.add_argument("-i", "--indir", required=True, help="folder with text files")
    return lambda args: wrote(args.param, f"{encode(args.indir, args.param)} parameters")


def decode(param: str, outdir: str) -> int:
    """Write parameters as text files.

    Args:
        param: Path of a file of parameters.
        outdir: Path of the folder to create.

    Returns:
        How many there are.

    Returns:
        How many there are.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If a file cannot be read or written.
    """
    folder = Path(outdir)
    entries = network_file.entries(param)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        name = quote(entry.name, safe="/ ").replace("/", "~")
        write(folder / f"{name}.txt", entry.values)
    return len(entries)


def encode(indir: str, param: str) -> int:
    """Make a file of parameters of text files.

    Args:
        indir: Path of the folder with the text files. All parameters need a gradient.
        param: Path of the file of parameters.

    Returns:
        How many there are.

    Raises:
        ParameterError: If a file is malformed, or the format unknown.
        OSError: If a file cannot be read or written.
    """
    entries = []
    for path in sorted(Path(indir).glob("*.txt")):
        name = unquote(path.name.removesuffix(".txt").replace("~", "/"))
        entries.append(parameter_file.Entry(name, read(path), True))
    if not entries:
        raise ParameterError(f"encode_param: expected text files in {indir!r}, got none")
    parameter_file.save(param, entries)
    return len(entries)


def write(path: Path, values: NDArray[Any]) -> None:
    """Write a text file of an array.

    Args:
        path: Path of the file.
        values: The array.

    Raises:
        OSError: If the file cannot be written.
    """
    found = np.asarray(values, np.float32)
    with replacing(path) as temporary, temporary.open("w") as file:
        file.write(f"{tuple(found.shape)}\n")
        found.tofile(file, sep="\n")


def read(path: Path) -> NDArray[Any]:
    """Read a text file of an array.

    Args:
        path: Path of the file.

    Returns:
        The array.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If it cannot be read.
    """
    try:
        head, *numbers = path.read_text().split("\n")
        if not re.fullmatch(r"\((\d+, ?)*(\d+)?,?\)", head.strip()):
            raise ValueError(f"the first line is {head!r}")
        shape = tuple(int(length) for length in re.findall(r"\d+", head))
        return np.array([float(n) for n in numbers if n.strip()], np.float32).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"encode_param: expected a shape and numbers, got {path}: {error}") from error
