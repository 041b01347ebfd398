"""`kinnor convert` and `kinnor dump`: convert and show files of networks and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..nnp import ProtoGraph
from . import wrote
from .accepted import refused, without_effect
from .formats import FORMATS, Document, FormatError, only_executor, read, with_parameters, write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "convert", "dump"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command.

    Args:
        name: `convert` or `dump`.
        parser: The parser of the command.
    """
    parser.add_argument("-I", "--import-format", metavar="FORMAT", help="NNP or ONNX; must match the extension")
    parser.add_argument("-E", "--nnp-import-executor-index", metavar="INDEX", type=int, help="read only this executor")
    refused(parser, "networks are read whole", "--nnp-exclude-preprocess")
    without_effect(parser, "what is repeated stays as it is", "--nnp-no-expand-network")
    if name == "dump":
        parser.add_argument("files", nargs="+", metavar="FILE", help="files of one model")
        parser.add_argument("-v", "--dump-verbose", action="store_true", help="show arguments of functions, too")
        parser.add_argument("-F", "--dump-functions", action="store_true", help="show functions")
        parser.add_argument("-V", "--dump-variables", action="store_true", help="show variables")
        parser.add_argument(
            "--dump-limit", type=int, default=-1, help="maximum number of functions and of variables to show"
        )
        parser.add_argument("-n", "--dump-variable-name", help="show only this variable")
        return lambda args: dump(
            args.files, args.dump_functions, args.dump_variables, args.dump_verbose, args.dump_limit,
            args.dump_variable_name, args.import_format, args.nnp_import_executor_index,
        )  # fmt: skip
    parser.add_argument("files", nargs="+", metavar="FILE", help="files of one model, then the file to write")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("-b", "--batch-size", type=int, help="batch size to save")
    parser.add_argument("--nnp-exclude-parameter", action="store_true", help="leave the parameters out")
    parser.add_argument("--expand-network", action="store_true", help="unroll repetitions")
    parser.add_argument("-O", "--export-format", metavar="FORMAT", help="NNP or ONNX; must match the extension")
    parser.add_argument("-d", "--define_version", metavar="VERSION", help="ONNX opset, such as opset_13")
    parser.add_argument(
        "--nnp-parameter-nntxt", action="store_true", help="write parameters into the network's text in a .nnp file"
    )
    without_effect(parser, "parameters in a .nnp are in this format", "--nnp-parameter-h5")
    without_effect(parser, "NNabla 1.39 reads what is written", "--nnp-version", takes="VERSION")
    without_effect(parser, "it follows from the version of the operators", "--ir_version", takes="VERSION")
    refused(parser, "networks are written whole", "-S", "--split", takes="SPLIT")
    refused(parser, "there are no files of targets", "-c", "--config", takes="CONFIG")
    for flags, takes in (
        (("-s", "--settings"), "FILE"),
        (("-T", "--default-variable-type"), "TYPE"),
        (("--api",), "N"),
    ):
        without_effect(parser, "it is for NNB files", *flags, takes=takes)
    for flag, value in (("--outputs", "NAMES"), ("--inputs", "NAMES"), ("--dataset", "PATH")):
        without_effect(parser, "it is for TensorFlow's files", flag, takes=value)
    for flag in ("--enable-optimize-pb", "--channel-last", "--quantization"):
        without_effect(parser, "it is for TensorFlow's files", flag)
    return lambda args: convert(
        args.files, args.force, args.batch_size, args.nnp_exclude_parameter, args.expand_network, args.import_format,
        args.export_format, args.nnp_import_executor_index, args.define_version, args.nnp_parameter_nntxt,
    )  # fmt: skip


NAMED = {"NNP": (".nnp", ".nntxt", ".prototxt", ".protobuf", ".h5", ".safetensors"), "ONNX": (".onnx",)}
"""NNabla's names of formats, and the extensions of their files."""


def _check_format(name: str | None, path: str) -> None:
    """Raise FormatError if a format is unknown, or if the extension of a path does not match it."""
    if name is None:
        return
    known = NAMED.get(name.upper())
    if known is None:
        raise FormatError(f"expected the format {' or '.join(NAMED)}, got {name!r}")
    if Path(path).suffix not in known:
        raise FormatError(f"expected a name that ends in {' or '.join(known)} for {name.upper()}, got {path!r}")


def opset(version: str | None) -> int | None:
    """The number in the name of an ONNX opset.

    Args:
        version: A name such as `opset_13`, or None.

    Raises:
        FormatError: If the name is malformed.
    """
    if version is None:
        return None
    number = version.removeprefix("opset_")
    if not (number.isascii() and number.isdigit() and len(number) < 5):
        raise FormatError(f"expected an ONNX opset such as opset_13, got {version!r}")
    return int(number)


def convert(
    files: list[str],
    force: bool = False,
    batch_size: int | None = None,
    exclude_parameter: bool = False,
    expand: bool = False,
    import_format: str | None = None,
    export_format: str | None = None,
    executor: int | None = None,
    version: str | None = None,
    parameter_text: bool = False,
) -> None:
    """Convert files of one model into another format.

    Args:
        files: Paths to read, then the path to write. The extensions select the formats.
        force: Whether to overwrite an existing file.
        batch_size: Batch size to save; None or a number below 1 keeps the batch size of the file.
        exclude_parameter: Whether to leave the parameters out.
        expand: Whether to unroll repetitions.
        import_format: `NNP` or `ONNX`; the extension of the first file must match.
        export_format: `NNP` or `ONNX`; the extension of the file to write must match.
        executor: Index of the only executor to convert; all by default.
        version: Opset of an ONNX file, such as `opset_13`.
        parameter_text: Whether to write parameters into the network's text inside a `.nnp` file, not as a member of
            their own.

    Raises:
        FormatError: If a format is unknown, or if the file exists.
        Error: If a file is malformed.
        OSError: If a file cannot be read or written.
    """
    *sources, target = files
    if not sources:
        raise FormatError("expected files to read and one to write, got one name")
    if Path(target).suffix not in FORMATS:
        raise FormatError(f"expected a name that ends in {' or '.join(FORMATS)}, got {target!r}")
    _check_format(import_format, sources[0])
    _check_format(export_format, target)
    operators = opset(version)
    if Path(target).exists() and not force:
        raise FormatError(f"expected a new file, or --force to overwrite it, got {target!r}")
    document = read(sources)
    if executor is not None:
        document = only_executor(document, executor)
    if batch_size is not None and batch_size > 0:
        for network in document.proto.network:
            network.batch_size = batch_size
            for variable in network.variable:
                variable.shape.dim[:] = [batch_size if n < 0 else n for n in variable.shape.dim]
    if expand:
        document = _expanded(document)
    if exclude_parameter:
        document = Document(document.proto, [])
    elif parameter_text and Path(target).suffix == ".nnp":
        document = Document(with_parameters(document), [])
    write(target, document, operators)
    wrote(target)


def _expanded(document: Document) -> Document:
    """Unroll the repetitions of a document's networks."""
    graph = ProtoGraph.from_proto(document.proto)
    graph.expand_loop_control()
    document.proto.ClearField("network")
    document.proto.network.extend(n.as_proto(variable_batch_size=False) for n in graph.networks.values())
    return document


def dump(
    files: list[str],
    functions: bool = False,
    variables: bool = False,
    verbose: bool = False,
    limit: int = -1,
    variable_name: str | None = None,
    import_format: str | None = None,
    executor: int | None = None,
) -> None:
    """Print the contents of the files of one model.

    Args:
        files: Their paths.
        functions: Whether to list functions.
        variables: Whether to list variables.
        verbose: Whether to show arguments of functions.
        limit: Maximum number of functions and of variables to list; all if it is negative.
        variable_name: Name of the only variable to show.
        import_format: `NNP` or `ONNX`; the extension of the first file must match.
        executor: Index of the only executor to show; all by default.

    Raises:
        FormatError: If there is no such format or executor.
        Error: If a file is malformed.
        OSError: If a file cannot be read.
    """
    _check_format(import_format, files[0])
    document = read(files)
    if executor is not None:
        document = only_executor(document, executor)
    graph = ProtoGraph.from_proto(document.proto)
    most = None if limit < 0 else limit
    for network in graph.networks.values():
        print(f"network {network.name}: batch size {network.batch_size}, {len(network.functions)} functions")
        nodes = {**network.variables, **network.parameters}
        if variable_name is not None:
            if variable_name in nodes:
                node = nodes[variable_name]
                print(f"  {node.type} {node.name} {node.shape}: of {node.parent}, for {', '.join(node.required)}")
            continue
        print(f"  inputs: {', '.join(f'{name} {nodes[name].shape}' for name in network.inputs)}")
        print(f"  outputs: {', '.join(f'{name} {nodes[name].shape}' for name in network.outputs)}")
        for function in [*network.functions.values()][:most] if functions or verbose else ():
            shown = f" {function.args}" if verbose else ""
            print(f"  {function.type} {function.name}: {', '.join(function.inputs)} -> {function.outputs[0]}{shown}")
        for node in [*nodes.values()][:most] if variables or verbose else ():
            print(f"  {node.type} {node.name} {node.shape}")
    for kind in ("dataset", "optimizer", "monitor", "executor"):
        for held in getattr(document.proto, kind):
            print(f"{kind} {held.name}")
    if document.entries:
        n_numbers = sum(int(np.size(entry.values)) for entry in document.entries)
        print(f"{len(document.entries)} parameters of {n_numbers} numbers")
