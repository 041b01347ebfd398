"""Conversion and printing of files of networks, as NNabla's command line program does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor import ArgumentError, UnsupportedError
from kinnor.cli import convert, formats
from kinnor.logger import logger

from .nnabla.exporter import NnpExporter, parameters_in
from .nnabla.importer import Imported, NnpImporter

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["convert_files", "dump_files"]


def convert_files(args: Any, ifiles: Sequence[str], output: str) -> bool:
    """Convert files of one model.

    Args:
        args: Options as attributes, all optional: `nnp_no_expand_network`, `nnp_import_executor_index`,
            `nnp_parameter_nntxt`, `nnp_parameter_h5`, `nnp_exclude_parameter`, and `define_version`, such as
            `opset_13`.
        ifiles: Paths of the files.
        output: The file to write, in any format of `kinnor convert`, or a folder for the files of a `.nnp` archive.

    Returns:
        True if the format of `output` exists.

    Raises:
        UnsupportedError: If `split` or `config` is set.
        ArgumentError: If `nnp_version` is set: Kinnor writes one version.
        NetworkError: If a file is malformed, or if the format cannot store the model.
        OSError: If a file cannot be read or written.
    """
    for name in ("split", "config"):
        if getattr(args, name, None) is not None:
            raise UnsupportedError(f"convert_files: expected no `{name}`: networks are converted whole")
    if (version := getattr(args, "nnp_version", None)) is not None:
        raise ArgumentError(f"convert_files: expected no `nnp_version`, as files have one version, got {version}")
    ending = Path(output).suffix.lower()
    if not Path(output).is_dir() and ending not in formats.FORMATS:
        logger.error(f"Output file ({ending}) is not supported or output directory does not exist.")
        return False
    nnp = _imported(args, list(ifiles))
    if ending == ".nnp" or Path(output).is_dir():
        NnpExporter(nnp, getattr(args, "batch_size", -1), _parameter_type(args)).execute(output)
    else:
        entries = parameters_in(nnp.protobuf)
        nnp.protobuf.ClearField("parameter")
        opset = convert.opset(getattr(args, "define_version", None))
        formats.write(output, formats.Document(nnp.protobuf, entries), opset)
    return True


def dump_files(args: Any, ifiles: Sequence[str]) -> bool:
    """Print the contents of the files of one model.

    Args:
        args: Options as attributes, all optional: `dump_functions`, `dump_variables`, `dump_verbose`, `dump_limit`,
            `dump_variable_name` and `nnp_import_executor_index`.
        ifiles: Paths of the files.

    Returns:
        True.

    Raises:
        NetworkError: If a file is malformed.
        OSError: If one cannot be read.
    """
    convert.dump(
        list(ifiles),
        getattr(args, "dump_functions", False),
        getattr(args, "dump_variables", False),
        getattr(args, "dump_verbose", False),
        getattr(args, "dump_limit", -1),
        getattr(args, "dump_variable_name", None),
        executor=getattr(args, "nnp_import_executor_index", None),
    )
    return True


def _imported(args: Any, files: list[str]) -> Imported:
    """Read files with the options of a command."""
    if any(Path(file).suffix == ".onnx" for file in files):
        return Imported(formats.with_parameters(formats.read(files)), [])
    expand = not getattr(args, "nnp_no_expand_network", False)
    index = getattr(args, "nnp_import_executor_index", None)
    return NnpImporter(*files, expand_network=expand, executor_index=index).execute()


def _parameter_type(args: Any) -> str:
    """The form of parameters that the options of a command select."""
    wanted = {"nnp_exclude_parameter": "none", "nnp_parameter_h5": "h5", "nnp_parameter_nntxt": "included"}
    return next((kind for name, kind in wanted.items() if getattr(args, name, False)), "protobuf")
