"""Files of networks: `.nntxt` and `.prototxt` (protobuf text), `.protobuf`, and `.nnp`, a zip archive of these.

Files are not trusted: sizes are checked before reading, and archives are not extracted to disk.
"""

from __future__ import annotations

import os
import warnings
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from .._core import Error, ParameterError
from . import parameter_file, parameter_protobuf, schema
from .atomic import replacing, steadily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .parameter_file import Entry, PathOrFile

__all__ = ["EXTENSIONS", "Content", "NetworkError", "entries", "is_archive", "read", "text", "write", "write_archive"]

VERSION = "0.1"
"""NNabla's version number of the archive format."""

TEXT = (".nntxt", ".prototxt")
"""Extensions of text files."""
EXTENSIONS = (".nnp", *TEXT, ".protobuf", ".h5")
"""Extensions of all files of networks."""

LARGEST_TEXT = 64 << 20
MOST_MESSAGES = 500_000
"""Limits on the bytes and opening braces of a text, as protobuf's text parser is slow."""

MOST_NODES = 200_000
"""Limit on the variables and functions of a file's networks, or of a network with its loops unrolled."""

MOST_MEMBERS = 10_000
"""Limit on the number of files in an archive."""
LEAST_LIMIT = 16 << 20
RATIO = 100
"""Limit on a decompressed member of an archive: this many times its compressed size, or 16 MiB."""


class NetworkError(Error, ValueError):
    """A file of a network is malformed, or refers to something that does not exist."""


class Content(NamedTuple):
    """The contents of a file: network, parameters, and solver states."""

    proto: Any
    """`NNablaProtoBuf` of `schema.messages`, without the parameters, which are in `entries`."""

    entries: list[Entry]
    """The parameters."""
    states: dict[str, tuple[str, bytes]]
    """Solver states by the names of archive members: their extension and bytes."""


def read(
    sources: PathOrFile | Sequence[PathOrFile],
    extension: str | None = None,
    op: str = "load",
    *,
    parameters: bool = True,
    networks: bool = True,
) -> Content:
    """Reads one or several files and merges their contents. Parameters of later files replace earlier ones.

    Args:
        sources: Paths, or files open for reading bytes or text.
        extension: Format of file objects, and of paths without a known extension.
        op: Name of the calling operation, for errors.
        parameters: Whether to read parameters.
        networks: Whether to read networks and everything else.

    Raises:
        NetworkError: If a format is unknown or a file malformed.
        OSError: If a file cannot be read.
    """
    content = Content(schema.messages().NNablaProtoBuf(), [], {})
    each: Any = sources if isinstance(sources, (list, tuple)) else [sources]
    for source in each:
        name, kind, raw = _bytes(op, source, extension)
        n = len(content.entries)
        try:
            _read_any(op, name, kind, raw, content)
        except NetworkError:
            raise
        except ParameterError as error:
            raise NetworkError(*error.args) from error
        except (ValueError, OverflowError, RecursionError) as error:
            raise NetworkError(f"{op}: expected a file of NNabla, got {name}: {error}") from error
        again = {entry.name for entry in content.entries[n:]}
        content.entries[:n] = [entry for entry in content.entries[:n] if entry.name not in again]
    for entry in content.entries:
        parameter_file.check_shape(op, entry.name, entry.values)
    if not parameters:
        content.entries.clear()
    if not networks:
        content.proto.Clear()
    return content


def entries(path: PathOrFile, extension: str | None = None) -> list[Entry]:
    """Reads the parameters of a file of parameters or of networks.

    Args:
        path: Path, or a file open for reading bytes.
        extension: Format, if the path does not say it: `.safetensors`, `.h5`, `.protobuf`, `.nnp`, `.nntxt` or
            `.prototxt`.

    Returns:
        The parameters, in the order in which they were saved.

    Raises:
        ParameterError: If the format is unknown or the file malformed.
        OSError: If the file cannot be read.
    """
    suffix = Path(path).suffix if isinstance(path, (str, os.PathLike)) else extension
    if suffix not in (".nnp", *TEXT):
        return parameter_file.load(path, extension)
    try:
        return read(path, suffix, "load_parameters").entries
    except NetworkError as error:
        raise ParameterError(*error.args) from error


def _bytes(op: str, source: PathOrFile, extension: str | None) -> tuple[str, str, bytes]:
    """The name of a source in errors, its format and its bytes."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        name = os.fspath(source)
        kind = path.suffix.lower() if path.suffix.lower() in EXTENSIONS else extension
    else:
        name, kind = f"a file object with extension={extension!r}", extension
    if kind not in EXTENSIONS:
        raise NetworkError(f"{op}: expected a name that ends in {' or '.join(EXTENSIONS)}, got {name}")
    if isinstance(source, (str, os.PathLike)):
        return name, kind, steadily(op, parameter_file.regular(source), Path.read_bytes)
    if kind == ".nnp" and source.seekable():
        source.seek(0)  # an archive is always read from its start
    raw: Any = source.read()
    return name, kind, raw.encode() if isinstance(raw, str) else raw


def _read_any(op: str, name: str, kind: str, raw: bytes, content: Content) -> None:
    """Reads bytes of a format, and adds the contents to `content`."""
    if kind == ".nnp":
        _read_archive(op, name, raw, content)
    elif kind in TEXT:
        _read_text(op, name, raw, content.proto)
        content.entries.extend(_text_parameters(content.proto))
    elif kind == ".h5":
        content.entries.extend(parameter_file.read_h5(op, name, raw))
    else:
        message = parameter_protobuf.parse(schema.arrays().NNablaProtoBuf, raw)
        _check_size(op, name, message)
        content.entries.extend(parameter_file.Entry(*found) for found in parameter_protobuf.parameters(message))
        message.ClearField("parameter")
        content.proto.MergeFromString(message.SerializeToString())


def _check_size(op: str, name: str, message: Any) -> None:
    """Raises NetworkError if networks have more than `MOST_NODES` nodes."""
    n_nodes = sum(1 + len(network.variable) + len(network.function) for network in message.network)
    if n_nodes > MOST_NODES:
        raise NetworkError(f"{op}: expected networks with at most {MOST_NODES} nodes, got {n_nodes} in {name}")


def _read_archive(op: str, name: str, raw: bytes, content: Content) -> None:
    """Reads the members of an archive, and adds the contents to `content`."""
    try:
        with zipfile.ZipFile(BytesIO(raw)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise NetworkError(f"{op}: expected at most {MOST_MEMBERS} files in {name}, got {len(members)}")
            for member in members:
                _, extension = os.path.splitext(member.filename)  # noqa: PTH122 - a name in an archive, no path
                if extension not in (*EXTENSIONS[1:], ".optimizer"):
                    continue
                shown = f"{member.filename!r} in {name}"
                if member.file_size > max(LEAST_LIMIT, RATIO * member.compress_size):
                    raise NetworkError(
                        f"{op}: expected at most {RATIO} times the {member.compress_size} bytes of {shown}, "
                        f"got {member.file_size}"
                    )
                found = archive.read(member)
                if extension == ".optimizer":
                    content.states[member.filename] = (_inner(member.filename), found)
                else:
                    _read_any(op, shown, extension, found, content)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, Error):
            raise
        ending = Path(str(name)).suffix
        hint = "; kinnor.onnx.load reads ONNX files" if ending == ".onnx" else ""
        if ending in (".h5", ".safetensors"):
            hint = "; load_parameters reads files of parameters"
        if ending in (".pt", ".pth"):
            hint = "; torch.onnx.export writes a file that kinnor.onnx.load reads"
        raise NetworkError(f"{op}: expected an archive of NNabla, got {name}: {error}{hint}") from error


def _inner(name: str) -> str:
    """The format of states: `h5` of `net_Adam_optimizer.h5.optimizer`."""
    return Path(name.removesuffix(".optimizer")).suffix


def _read_text(op: str, name: str, raw: bytes, proto: Any) -> None:
    """Parses protobuf text, and merges it into `proto`."""
    from google.protobuf import text_format

    raw = raw.strip()
    if len(raw) > LARGEST_TEXT:
        raise NetworkError(f"{op}: expected at most {LARGEST_TEXT} bytes of text, got {len(raw)} in {name}")
    n_messages = raw.count(b"{") + raw.count(b"<")
    if n_messages > MOST_MESSAGES:
        raise NetworkError(f"{op}: expected at most {MOST_MESSAGES} messages, got {n_messages} in {name}")
    try:
        with warnings.catch_warnings():
            # As in protobuf, a backslash that starts no escape sequence is literal.
            warnings.filterwarnings("ignore", "invalid .*escape sequence", DeprecationWarning)
            # Unknown fields, from other versions of NNabla, are ignored.
            text_format.Merge(raw.decode(), proto, allow_unknown_field=True)
    except (text_format.ParseError, TypeError) as error:
        raise NetworkError(f"{op}: expected text of NNabla, got {name}: {error}") from error
    _check_size(op, name, proto)


def _text_parameters(proto: Any) -> list[Entry]:
    """Removes the parameters from a message and returns them, in single precision."""
    whole = schema.messages().NNablaProtoBuf()
    whole.parameter.extend(proto.parameter)
    proto.ClearField("parameter")
    return [parameter_file.Entry(*found) for found in parameter_protobuf.decode(whole.SerializeToString())]


# --- Writing


def write(path: PathOrFile, proto: Any, extension: str | None = None) -> None:
    """Writes a message as text or in binary, atomically.

    Args:
        path: Path, or a file open for writing.
        proto: `NNablaProtoBuf` of `schema.messages`.
        extension: Format of a file object: `.nntxt`, `.prototxt` or `.protobuf`.

    Raises:
        NetworkError: If the format is unknown.
        OSError: If the file cannot be written.
    """
    content: bytes = proto.SerializeToString() if _kind(path, extension) == ".protobuf" else text(proto).encode()
    _write_bytes(path, content)


def text(proto: Any) -> str:
    """A message as protobuf's text."""
    from google.protobuf import text_format

    return str(text_format.MessageToString(proto))


def write_archive(
    path: PathOrFile,
    proto: Any,
    entries: list[Entry],
    parameter_format: str | None = ".h5",
    states: Iterable[tuple[str, bytes]] = (),
) -> None:
    """Writes an archive with a network, parameters and solver states, atomically.

    Args:
        path: Path, or a file open for writing bytes.
        proto: `NNablaProtoBuf` of `schema.messages`.
        entries: The parameters.
        parameter_format: `.h5` or `.protobuf`, or None to leave out parameters.
        states: Names and bytes of further members.

    Raises:
        ParameterError: If the format cannot hold a parameter.
        OSError: If the file cannot be written.
    """
    held = BytesIO()
    if parameter_format is not None:
        parameter_file.save(held, entries, parameter_format)

    def fill(target: Path | BytesIO) -> None:
        """Writes the archive to a file."""
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("nnp_version.txt", f"{VERSION}\n")
            archive.writestr("network.nntxt", text(proto))
            if parameter_format is not None:
                archive.writestr(f"parameter{parameter_format}", held.getbuffer())
            for name, content in states:
                archive.writestr(name, content)

    _fill(path, fill)


def is_archive(path: PathOrFile, extension: str | None) -> bool:
    """True if the format of a file to write is `.nnp`.

    Args:
        path: Path, or a file object.
        extension: Format of a file object.
    """
    return (Path(path).suffix if isinstance(path, (str, os.PathLike)) else extension) == ".nnp"


def _kind(path: PathOrFile, extension: str | None) -> str:
    """The text or binary format of a file to write."""
    kind = Path(path).suffix if isinstance(path, (str, os.PathLike)) else extension
    if kind not in (*TEXT, ".protobuf"):
        raise NetworkError(f"save: expected a name that ends in .nnp or .nntxt or .prototxt or .protobuf, got {path}")
    return kind


def _write_bytes(path: PathOrFile, content: bytes) -> None:
    """Writes bytes to a file or file object."""

    def fill(target: Path | BytesIO) -> None:
        """Writes the bytes to a file."""
        if isinstance(target, Path):
            target.write_bytes(content)
        else:
            target.write(content)

    _fill(path, fill)


def _fill(path: PathOrFile, fill: Callable[[Path | BytesIO], None]) -> None:
    """Calls `fill` to write a file atomically, or to write a file object of bytes or text."""
    if isinstance(path, (str, os.PathLike)):
        with replacing(path) as temporary:
            fill(temporary)
        return
    held = BytesIO()
    fill(held)
    file: IO[Any] = path
    try:
        file.write(held.getvalue())
    except TypeError:
        file.write(held.getvalue().decode())
    parameter_file.rewind(file)
