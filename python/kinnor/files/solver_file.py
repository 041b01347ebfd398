"""Files of solver states: safetensors, and HDF5 and protobuf in NNabla's layout.

Files are not trusted: all contents are checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core import ParameterError
from . import hdf5, parameter_file, solver_protobuf
from .atomic import replacing, steadily

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ENDINGS", "State", "load", "read_h5", "save"]


class State(NamedTuple):
    """The state of a solver for one parameter: number of updates, and arrays by name."""

    t: int
    """The number of updates."""
    arrays: dict[str, NDArray[Any]]


def save(path: str | os.PathLike[str], states: dict[str, State]) -> None:
    """Writes a file, atomically.

    Args:
        path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.
        states: States by the names of parameters.

    Raises:
        ParameterError: If the format is unknown or cannot hold the states, or if a name cannot be loaded again.
        OSError: If the file cannot be written.
    """
    write, _ = _format("save_states", path)
    names = [f"{key}/{name}" for key, state in states.items() for name in (*state.arrays, "t")]
    parameter_file.check_names("save_states", names)
    with replacing(path) as temporary:
        write(temporary, states)


def load(path: str | os.PathLike[str]) -> dict[str, State]:
    """Reads a file.

    Args:
        path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

    Returns:
        States by the names of parameters.

    Raises:
        ParameterError: If the format is unknown or the file malformed.
        OSError: If the file cannot be read.
    """
    _, read = _format("load_states", path)
    states = steadily("load_states", parameter_file.regular(path), read)
    for key, state in states.items():
        for name, values in state.arrays.items():
            parameter_file.check_shape("load_states", f"{key}/{name}", values)
    return states


def _format(op: str, path: str | os.PathLike[str]) -> _Format:
    """The functions that write and read the format of a path."""
    suffix = Path(path).suffix
    if suffix not in _FORMATS:
        raise ParameterError(f"{op}: expected a name that ends in {_extensions()}, got {os.fspath(path)!r}")
    return _FORMATS[suffix]


def _extensions() -> str:
    """The supported extensions, for errors."""
    return " or ".join(_FORMATS)


# --- safetensors: a tensor `parameter/state` for each array, and `parameter/t` for the number of updates.


def _write_safetensors(path: Path, states: dict[str, State]) -> None:
    """Writes a safetensors file in place."""
    entries = []
    for key, state in states.items():
        arrays = {**state.arrays, "t": np.asarray(state.t, np.int64)}
        entries += [parameter_file.Entry(f"{key}/{name}", array, False) for name, array in arrays.items()]
    parameter_file.write_safetensors(path, entries)


def _read_safetensors(path: Path) -> dict[str, State]:
    """Reads an untrusted safetensors file."""
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    for entry in parameter_file.read_safetensors(path):
        key, _, name = entry.name.rpartition("/")
        arrays.setdefault(key, {})[name] = entry.values
    return {key: _state(path, key, found) for key, found in arrays.items()}


def _state(path: str | os.PathLike[str], key: str, arrays: dict[str, NDArray[Any]]) -> State:
    """The state from its arrays, which include `t`."""
    t = arrays.pop("t", None)
    if t is None or t.shape != () or t.dtype.kind not in "iu" or not 0 <= int(t) < 2**32:
        raise ParameterError(f"load_states: expected a number `t` of updates of {key!r}, got {t!r} in {path}")
    wrong = [name for name, array in arrays.items() if array.dtype.kind != "f"]
    if wrong:
        raise ParameterError(f"load_states: expected real numbers, got other values of {key!r}, {wrong[0]!r} in {path}")
    return State(int(t), arrays)


# --- HDF5: a group for each parameter, with its index as `index`. It has a dataset for each array, and `t`.


def _write_h5(path: Path, states: dict[str, State]) -> None:
    """Writes an HDF5 file in place."""
    with hdf5.writing("save_states", path) as file:
        for index, (key, state) in enumerate(states.items()):
            group = file.create_group(key)
            group.attrs["index"] = index
            group["t"] = np.asarray(state.t, np.int64)
            for place, (name, array) in enumerate(state.arrays.items()):
                group.create_dataset(name, data=array).attrs["index"] = place


def _read_h5(path: Path) -> dict[str, State]:
    """Reads an untrusted HDF5 file."""
    return read_h5(path)


def read_h5(path: str | os.PathLike[str], content: bytes | None = None) -> dict[str, State]:
    """Reads an untrusted HDF5 file.

    Args:
        path: The file.
        content: The content of the file, if it is a member of an archive.

    Raises:
        ParameterError: If it is malformed.
    """
    with hdf5.reading("load_states", path, content) as nodes:
        members: dict[str, list[hdf5.Node]] = {node.name: [] for node in nodes if not node.is_dataset}
        for node in nodes:
            group = node.name.rpartition("/")[0]
            if node.is_dataset and group:
                members[group].append(node)
        found = []
        for node in nodes:
            arrays = sorted(members.get(node.name, ()), key=lambda member: member.number("index") or 0)
            if any(member.name == f"{node.name}/t" for member in arrays):
                values = {member.name.rpartition("/")[2]: member.values() for member in arrays}
                found.append((node.number("index") or 0, node.name, _state(path, node.name, values)))
    return {name: state for _, name, state in sorted(found, key=lambda item: item[0])}


# --- protobuf: NNabla's `Optimizer` message.


def _write_protobuf(path: Path, states: dict[str, State]) -> None:
    """Writes a protobuf file in place."""
    with path.open("wb") as file:
        file.writelines(solver_protobuf.pieces((key, *state) for key, state in states.items()))


def _read_protobuf(path: Path) -> dict[str, State]:
    """Reads an untrusted protobuf file."""
    try:
        return {key: State(t, arrays) for key, t, arrays in solver_protobuf.decode(path.read_bytes())}
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"load_states: expected NNabla's Optimizer message, got {path}: {error}") from error


if TYPE_CHECKING:
    _Format = tuple[Callable[[Path, dict[str, State]], None], Callable[[Path], dict[str, State]]]

_FORMATS: dict[str, _Format] = {
    ".safetensors": (_write_safetensors, _read_safetensors),
    ".h5": (_write_h5, _read_h5),
    ".protobuf": (_write_protobuf, _read_protobuf),
}
"""The functions that write and read a file, by extension."""

ENDINGS = (*_FORMATS, ".nnp", ".nntxt", ".prototxt")
"""Extensions of all formats of solver states in Kinnor and NNabla."""
