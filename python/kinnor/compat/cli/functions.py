"""`kinnor function_info`: lists all functions, or the functions that a file needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import functions
from ...cli import wrote
from ...cli.accepted import refused, without_effect
from ...cli.formats import read
from ...files.atomic import replacing
from ...nnp import NetworkError, ProtoGraph, messages

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "listed"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("files", nargs="*", metavar="FILE", help="files of one model; lists their functions")
    parser.add_argument("-o", "--output", help="file to write, instead of printing")
    parser.add_argument(
        "-x", "--exclude", action="append", default=[], help="function type to leave out; may be repeated"
    )
    parser.add_argument("-q", "--query", help="type to show with its arguments and its documentation")
    parser.add_argument("-f", "--all_support", metavar="SET", help="list only functions that ONNX files can store")
    refused(parser, "there are no files of targets", "-c", "--config", takes="CONFIG")
    without_effect(parser, "there is one form of the list", "-t", "--target")
    without_effect(parser, "functions of repeated parts are counted as often as they run", "--nnp-no-expand-network")
    without_effect(parser, "levels are those of NNB files", "--api", takes="API")
    return lambda args: _write_lines(listed(args.files, args.exclude, args.query, args.all_support), args.output)


def listed(files: list[str], exclude: list[str], query: str | None = None, all_support: str | None = None) -> list[str]:
    """The lines that `kinnor function_info` prints.

    Args:
        files: Paths of the files of one model; if empty, all functions are listed.
        exclude: Function types to leave out.
        query: A function type to describe instead of the list.
        all_support: `ONNX` to list only functions that ONNX files can store.

    Returns:
        A line for each type: its count in the files, its name in Python, and whether Kinnor lacks it.

    Raises:
        NetworkError: If the type `query` or the set `all_support` does not exist.
        OSError: If a file cannot be read.
    """
    known = messages.declared()
    if all_support is not None:
        if all_support.upper() != "ONNX":
            raise NetworkError(f"expected the set ONNX, got {all_support!r}")
        from ...onnx.write.exports import EXPORTS

        exclude = [*exclude, *(kind for kind in known if kind not in EXPORTS)]
    if query is not None:
        function = getattr(functions, messages.function_name(query), None)
        if function is None:
            raise NetworkError(f"expected a type of function, got {query!r}")
        arguments = ", ".join(known[query].keywords) if query in known else ""
        return [f"{query}: F.{messages.function_name(query)}({arguments})", "", str(function.__doc__)]
    if not files:
        return [f"{kind}: F.{known[kind].name}" for kind in sorted(known) if kind not in exclude]
    counts: dict[str, int] = {}
    for network in ProtoGraph.from_proto(read(files).proto).networks.values():
        for held in network.expand_loop_control().functions.values():
            counts[held.type] = counts.get(held.type, 0) + 1
    lines = []
    for kind in sorted(counts.keys() - set(exclude)):
        name = messages.function_name(kind)
        lines.append(f"{kind}: {counts[kind]} times, F.{name}" + ("" if name in functions.__all__ else ", missing"))
    return lines


def _write_lines(lines: list[str], output: str | None) -> None:
    """Write lines to a file, or print them if `output` is None."""
    text = "\n".join(lines)
    if output is None:
        print(text)
        return
    with replacing(Path(output)) as temporary:
        temporary.write_text(text + "\n")
    wrote(output)
