"""Loaders and savers of files by extension. They exchange data with a program by the attributes of a context.

This module selects the parts of a file; `kinnor.files` reads and writes the formats.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor import ArgumentError, Variable
from kinnor import parameter as parameters
from kinnor.compat.utils import solver_messages
from kinnor.files import network_file, parameter_file, parameter_protobuf, schema, solver_file
from kinnor.logger import logger
from kinnor.nnp import NetworkError, entries
from kinnor.solvers import SolverState

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Mapping, Sequence

    from kinnor.files.network_file import Content
    from kinnor.files.parameter_file import PathOrFile

    Loader = Callable[[Any, Mapping[str, Any], zipfile.ZipFile | None, PathOrFile, str], None]
    Saver = Callable[[Any, PathOrFile, str], None]

__all__ = [
    "FileHandlerContext",
    "get_buf_type",
    "get_decorated_file_loader",
    "get_default_file_savers",
    "get_initial_file_loader",
    "get_parameter_file_loader",
    "get_parameter_file_savers",
    "load_files",
    "load_solve_state_from_h5",
    "save_files",
]


class FileHandlerContext:
    """Options and results of loaders and savers. A program sets the attributes that it needs.

    Attributes:
        proto: An `NNablaProtoBuf`: loaders add networks, solvers and executors to it, savers write it.
        parameter_scope: The scope that parameters are loaded into; the current scope if not set.
        exclude_parameter: Whether to leave parameters out.
        parameter_only: Whether to leave networks out.
        needs_proto: Whether to add the parameters of `.h5` files to `proto`, too.
        optimizers: Objects with `name` and `solver`, by name. Loaders set the states of their solvers.
        optimizer_states_checkpoint: States not yet passed to solvers: format and content by the optimizer's name.
        parameters: The variables to save, by path.
    """


def get_buf_type(filename: str) -> str:
    """The format of a file of solver states, from its name.

    Args:
        filename: Name of the file, such as `train_Adam_optimizer.h5.optimizer`.

    Returns:
        The text after the first dot of the part after the last underscore, such as `h5` or `protobuf`.

    Raises:
        ArgumentError: If there is no such dot.

    Examples:
        >>> get_buf_type("train_Adam_optimizer.h5.optimizer")
        'h5'
    """
    parts = filename.split("_")[-1].split(".")
    if len(parts) < 2:
        raise ArgumentError(f"get_buf_type: expected a name with an extension, got {filename!r}")
    return parts[1].lower()


# --- Reading


def get_parameter_file_loader() -> OrderedDict[str, Loader]:
    """Loaders that read parameters.

    Returns:
        Functions by extensions for `load_files`: `.h5`, `.protobuf`, `.nntxt,.prototxt` and `.nnp`.
    """
    return _loaders((".h5", ".protobuf", ".nntxt,.prototxt", ".nnp"), partial(_load, _no_states))


def get_initial_file_loader() -> OrderedDict[str, Loader]:
    """Loaders that read networks and parameters, and store the states of solvers in the context.

    Returns:
        Functions by extensions for `load_files`: `.nntxt,.prototxt`, `.protobuf,.h5`, `.nnp` and `.optimizer`.
    """
    return _loaders((".nntxt,.prototxt", ".protobuf,.h5", ".nnp", ".optimizer"), partial(_load, _keep_states))


def get_decorated_file_loader() -> OrderedDict[str, Loader]:
    """Loaders that set the parameters of existing networks and the states of existing solvers.

    Returns:
        Functions by extensions for `load_files`: `.optimizer`, `.protobuf,.h5` and `.nnp`.
    """
    return _loaders((".optimizer", ".protobuf,.h5", ".nnp"), partial(_load, _give_states, networks=False))


def _loaders(extensions: Sequence[str], loader: Any) -> OrderedDict[str, Loader]:
    """One loader for several extensions."""
    return OrderedDict((extension, loader) for extension in extensions)


def load_files(
    ctx: Any,
    file_loaders: Mapping[str, Loader],
    filenames: PathOrFile | Sequence[PathOrFile],
    extension: str | None = None,
) -> None:
    """Read each file by the loader for its extension. A file without a loader is skipped with a warning.

    Args:
        ctx: A `FileHandlerContext`.
        file_loaders: Loaders by extension: functions of `ctx`, `file_loaders`, an archive or None, path and extension.
        filenames: A path, a file open for reading, or a list of these.
        extension: Extension to assume for open files.

    Raises:
        NetworkError: If a file is malformed.
        ParameterError: If a parameter has another shape than the existing one.
        OSError: If a file cannot be read.
    """
    with parameters.parameter_scope("", getattr(ctx, "parameter_scope", None)):
        for name, kind in _named(filenames, extension):
            loader = _handler_of(file_loaders, kind)
            if loader is None:
                logger.warning(f"{name} is omitted.")
            else:
                loader(ctx, file_loaders, None, name, kind)


def _named(filenames: Any, extension: str | None) -> list[tuple[Any, str]]:
    """Pairs of file and extension."""
    each = filenames if isinstance(filenames, (list, tuple)) else [filenames]
    return [(f, Path(f).suffix if isinstance(f, (str, os.PathLike)) else extension or "") for f in each]


def _handler_of(handlers: Mapping[str, Any], extension: str) -> Any:
    """The handler whose key lists an extension, or None."""
    return next((held for known, held in handlers.items() if extension in known.replace(" ", "").split(",")), None)


def _load(
    give: Callable[[Any, Content], None],
    ctx: Any,
    file_loaders: Mapping[str, Loader],
    nnp: zipfile.ZipFile | None,
    filename: PathOrFile,
    ext: str,
    *,
    networks: bool = True,
) -> None:
    """Read a file or a member of an archive. Solver states in it are passed to `give`."""
    source = filename if nnp is None else io.BytesIO(nnp.read(str(filename)))
    if ext == ".optimizer":
        raw = source.read() if hasattr(source, "read") else Path(source).read_bytes()
        member = Path(str(filename)).name
        content = network_file.Content(None, [], {member: (f".{get_buf_type(member)}", raw)})
    else:
        content = network_file.read(
            source,
            ext,
            "load_files",
            parameters=not getattr(ctx, "exclude_parameter", False),
            networks=networks and not getattr(ctx, "parameter_only", False),
        )
        proto = _proto(ctx)
        proto.MergeFrom(content.proto)
        parameters.put(content.entries, "load_files")
        if ext != ".h5" or getattr(ctx, "needs_proto", False):
            for piece in parameter_protobuf.pieces(content.entries):
                proto.MergeFromString(piece)
    give(ctx, content)


def _proto(ctx: Any) -> Any:
    """The message of a context, created if it has none."""
    if getattr(ctx, "proto", None) is None:
        ctx.proto = schema.messages().NNablaProtoBuf()
    return ctx.proto


def _no_states(ctx: Any, content: Content) -> None:
    """Ignore the solver states: for loaders of parameters."""


def _keep_states(ctx: Any, content: Content) -> None:
    """Store solver states in the context for later."""
    kept = getattr(ctx, "optimizer_states_checkpoint", OrderedDict())
    for member, (kind, raw) in content.states.items():
        if kind == ".h5":
            kept[member.rsplit("_", 2)[0]] = (kind, io.BytesIO(raw))
            continue
        try:
            optimizers = parameter_protobuf.parse(schema.messages().NNablaProtoBuf, raw).optimizer
        except (ValueError, OverflowError) as error:
            raise NetworkError(f"load_files: expected states of solvers, got {member!r}: {error}") from error
        kept.update((optimizer.name, (kind, optimizer)) for optimizer in optimizers)
    ctx.optimizer_states_checkpoint = kept


def _give_states(ctx: Any, content: Content) -> None:
    """Pass solver states to the solvers of the context."""
    for optimizer in getattr(ctx, "optimizers", {}).values():
        solver_messages.load_states(optimizer.name, optimizer.solver, content.states)


def load_solve_state_from_h5(nnp: zipfile.ZipFile | None, filename: PathOrFile) -> OrderedDict[str, SolverState]:
    """Read the states of a solver, in the form of `Solver.set_states`.

    Args:
        nnp: The archive that contains the file, or None if the file is not in an archive.
        filename: Path, name in the archive, or a file open for reading bytes.

    Returns:
        States by the parameters' names.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If it cannot be read.
    """
    if nnp is not None:
        raw = nnp.read(str(filename))
    else:
        raw = filename.read() if hasattr(filename, "read") else parameter_file.regular(filename).read_bytes()
    return OrderedDict(
        (name, SolverState({key: Variable.from_numpy_array(kept) for key, kept in state.arrays.items()}, state.t))
        for name, state in solver_file.read_h5(str(filename), raw).items()
    )


# --- Writing


def get_default_file_savers(
    parameter_format: str = ".h5", solver_state_format: str | None = None
) -> OrderedDict[str, Saver]:
    """Savers that write `proto` of a context. Archives get the parameters, too.

    Args:
        parameter_format: Format of the parameters in an archive: `.h5` or `.protobuf`.
        solver_state_format: Format of the states of the solvers in `optimizers`, or None to leave them out.

    Returns:
        Functions by extensions for `save_files`: `.nntxt, .prototxt`, `.protobuf` and `.nnp`.
    """
    archive = partial(_save_archive, parameter_format, solver_state_format)
    return OrderedDict([(".nntxt, .prototxt", _save_proto), (".protobuf", _save_proto), (".nnp", archive)])


def get_parameter_file_savers() -> OrderedDict[str, Saver]:
    """Savers that write the parameters of a context.

    Returns:
        Functions by extensions for `save_files`: `.h5` and `.protobuf`.
    """
    return OrderedDict([(".h5", _save_parameters), (".protobuf", _save_parameters)])


def save_files(
    ctx: Any,
    file_savers: Mapping[str, Saver],
    filenames: PathOrFile | Sequence[PathOrFile],
    extension: str | None = None,
) -> bool:
    """Write each file by the saver for its extension, whole or not at all.

    Args:
        ctx: A `FileHandlerContext`.
        file_savers: Savers by extension: functions of `ctx`, path and extension.
        filenames: A path, a file open for writing, or a list of these.
        extension: Extension to assume for open files.

    Returns:
        True if every file had a saver.

    Raises:
        NetworkError: If a format is unknown.
        OSError: If a file cannot be written.
    """
    saved = []
    for name, kind in _named(filenames, extension):
        saver = _handler_of(file_savers, kind)
        if saver is not None:
            saver(ctx, name, kind)
        saved.append(saver is not None)
    return all(saved)


def _save_proto(ctx: Any, filename: PathOrFile, ext: str) -> None:
    """Write the message of a context."""
    network_file.write(filename, ctx.proto, ext)


def _save_parameters(ctx: Any, filename: PathOrFile, ext: str) -> None:
    """Write the parameters of a context."""
    parameters.save_parameters(filename, ctx.parameters, ext)


def _save_archive(parameter_format: str, state_format: str | None, ctx: Any, filename: PathOrFile, ext: str) -> None:
    """Write a `.nnp` archive from a context."""
    found = getattr(ctx, "parameters", None)
    held = parameters.get_parameters(grad_only=False) if found is None else found
    if parameter_format not in (".h5", ".protobuf"):
        raise NetworkError(f"save_files: expected .h5 or .protobuf as `parameter_format`, got {parameter_format!r}")
    states = []
    if state_format is not None:
        given = [o.optimizer if hasattr(o, "optimizer") else o for o in ctx.optimizers.values()]
        states = [solver_messages.state_file(o.name, o.solver, state_format) for o in given]
    network_file.write_archive(filename, ctx.proto, entries(held.items()), parameter_format, states)
