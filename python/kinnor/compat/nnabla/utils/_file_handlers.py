"""Loaders and savers of files by extension, and what they share with a program: the attributes of a context.

Knows which parts of a file a program wants; formats are those of `kinnor.files`.
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
from kinnor.files import network_file, parameter_file, parameter_protobuf, schema, solver_file
from kinnor.logger import logger
from kinnor.nnp import NetworkError, entries, solvers
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
    """What loaders and savers share. A program sets the attributes that it wants.

    Attributes:
        proto: An `NNablaProtoBuf` that gets networks and what belongs to them, or that is saved.
        parameter_scope: The scope that parameters go into; the current one if it is not set.
        exclude_parameter: Whether to leave parameters out.
        parameter_only: Whether to leave networks out.
        needs_proto: Whether `proto` gets the parameters of `.h5` files, too.
        optimizers: Objects with a `name` and a `solver` by name, whose solvers get their states.
        optimizer_states_checkpoint: States that are not given to solvers yet: format and content by optimizer's name.
        parameters: Variables by path that are saved.
    """


def get_buf_type(filename: str) -> str:
    """The format that the name of a member with states of solvers says.

    Args:
        filename: Its name, such as `train_Adam_optimizer.h5.optimizer`.

    Returns:
        `h5`, `protobuf` or whatever stands after the first point of the last part between underscores.

    Raises:
        ArgumentError: If there is no such point.

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
    """Loaders that read networks and parameters, and keep states of solvers for later.

    Returns:
        Functions by extensions for `load_files`: `.nntxt,.prototxt`, `.protobuf,.h5`, `.nnp` and `.optimizer`.
    """
    return _loaders((".nntxt,.prototxt", ".protobuf,.h5", ".nnp", ".optimizer"), partial(_load, _keep_states))


def get_decorated_file_loader() -> OrderedDict[str, Loader]:
    """Loaders that give networks that are there already their parameters, and solvers their states.

    Returns:
        Functions by extensions for `load_files`: `.optimizer`, `.protobuf,.h5` and `.nnp`.
    """
    return _loaders((".optimizer", ".protobuf,.h5", ".nnp"), partial(_load, _give_states, networks=False))


def _loaders(extensions: Sequence[str], loader: Any) -> OrderedDict[str, Loader]:
    return OrderedDict((extension, loader) for extension in extensions)


def load_files(
    ctx: Any,
    file_loaders: Mapping[str, Loader],
    filenames: PathOrFile | Sequence[PathOrFile],
    extension: str | None = None,
) -> None:
    """Read files, each by the loader for its extension; one that has none is left out with a warning.

    Args:
        ctx: A `FileHandlerContext`.
        file_loaders: Functions of `ctx`, these loaders, an archive or None, path and extension, by extensions.
        filenames: A path, a file that is open for reading, or several.
        extension: Extension of files that are open.

    Raises:
        NetworkError: If a file is malformed.
        ParameterError: If a parameter has another shape than the one that is there.
        OSError: If a file cannot be read.
    """
    with parameters.parameter_scope("", getattr(ctx, "parameter_scope", None)):
        for name, kind in _named(filenames, extension):
            loader = _found(file_loaders, kind)
            if loader is None:
                logger.warning(f"{name} is omitted.")
            else:
                loader(ctx, file_loaders, None, name, kind)


def _named(filenames: Any, extension: str | None) -> list[tuple[Any, str]]:
    """Files with their extensions."""
    each = filenames if isinstance(filenames, (list, tuple)) else [filenames]
    return [(f, Path(f).suffix if isinstance(f, (str, os.PathLike)) else extension or "") for f in each]


def _found(handlers: Mapping[str, Any], extension: str) -> Any:
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
    """Read a file, or a member of an archive; `give` is called with the states of solvers that it has."""
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
    if getattr(ctx, "proto", None) is None:
        ctx.proto = schema.messages().NNablaProtoBuf()
    return ctx.proto


def _no_states(ctx: Any, content: Content) -> None:
    """States are no parameters."""


def _keep_states(ctx: Any, content: Content) -> None:
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
    for optimizer in getattr(ctx, "optimizers", {}).values():
        solvers.load_states(optimizer.name, optimizer.solver, content.states)


def load_solve_state_from_h5(nnp: zipfile.ZipFile | None, filename: PathOrFile) -> OrderedDict[str, SolverState]:
    """What a solver kept, as `Solver.set_states` takes it.

    Args:
        nnp: The archive that the file lies in, or None if it is a file by itself.
        filename: Its path, its name in the archive, or a file that is open for reading bytes.

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
    """Savers that write `proto` of a context, and its parameters where the format is an archive.

    Args:
        parameter_format: Format of the parameters in an archive: `.h5` or `.protobuf`.
        solver_state_format: Format of what the solvers of `optimizers` keep, or None to leave it out.

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
    """Write files, each by the saver for its extension, whole or not at all.

    Args:
        ctx: A `FileHandlerContext`.
        file_savers: Functions of `ctx`, path and extension, by extensions.
        filenames: A path, a file that is open for writing, or several.
        extension: Extension of files that are open.

    Returns:
        Whether there was a saver for each.

    Raises:
        NetworkError: If a format is unknown.
        OSError: If a file cannot be written.
    """
    saved = []
    for name, kind in _named(filenames, extension):
        saver = _found(file_savers, kind)
        if saver is not None:
            saver(ctx, name, kind)
        saved.append(saver is not None)
    return all(saved)


def _save_proto(ctx: Any, filename: PathOrFile, ext: str) -> None:
    network_file.write(filename, ctx.proto, ext)


def _save_parameters(ctx: Any, filename: PathOrFile, ext: str) -> None:
    parameters.save_parameters(filename, ctx.parameters, ext)


def _save_archive(parameter_format: str, state_format: str | None, ctx: Any, filename: PathOrFile, ext: str) -> None:
    found = getattr(ctx, "parameters", None)
    held = parameters.get_parameters(grad_only=False) if found is None else found
    if parameter_format not in (".h5", ".protobuf"):
        raise NetworkError(f"save_files: expected .h5 or .protobuf as `parameter_format`, got {parameter_format!r}")
    states = []
    if state_format is not None:
        given = [o.optimizer if hasattr(o, "optimizer") else o for o in ctx.optimizers.values()]
        states = [solvers.state_file(o.name, o.solver, state_format) for o in given]
    network_file.write_archive(filename, ctx.proto, entries(held.items()), parameter_format, states)
