"""Files of solver states: HDF5 and protobuf in NNabla's layout, and safetensors.

Knows formats; knows no solvers. A file comes from anywhere and is believed nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import parameter_file, solver_protobuf
from ._core import ParameterError
from .atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["State", "load", "save"]


class State(NamedTuple):
    """What a solver remembers of one parameter."""

    t: int
    arrays: dict[str, NDArray[Any]]


def save(path: str | os.PathLike[str], states: dict[str, State]) -> None:
    """Write a file, whole or not at all.

    Args:
        path: Path; its suffix says the format: `.safetensors`, `.h5` or `.protobuf`.
        states: What to write, by the names of parameters.

    Raises:
        ParameterError: If the format is unknown or cannot hold the states.
        OSError: If the file cannot be written.
    """
    write, _ = _format("save_states", path)
    with replacing(path) as temporary:
        write(temporary, states)


def load(path: str | os.PathLike[str]) -> dict[str, State]:
    """Read a file.

    Args:
        path: Path; its suffix says the format: `.safetensors`, `.h5` or `.protobuf`.

    Returns:
        States by the names of parameters.

    Raises:
        ParameterError: If the format is unknown or the file malformed.
        OSError: If the file cannot be read.
    """
    _, read = _format("load_states", path)
    with Path(path).open("rb"):  # For the usual error where there is no such file.
        return read(Path(path))


def _format(op: str, path: str | os.PathLike[str]) -> _Format:
    """The functions that write and read a format."""
    suffix = Path(path).suffix
    if suffix in (".nnp", ".nntxt", ".prototxt"):
        raise NotImplementedError(f"{op}: expected {_known()}, got {os.fspath(path)!r}: not supported yet")
    if suffix not in _FORMATS:
        raise ParameterError(f"{op}: expected a name that ends in {_known()}, got {os.fspath(path)!r}")
    return _FORMATS[suffix]


def _known() -> str:
    return " or ".join(_FORMATS)


# --- safetensors: a tensor `parameter/state` for each array, and `parameter/t`.


def _write_safetensors(path: Path, states: dict[str, State]) -> None:
    entries = []
    for key, state in states.items():
        arrays = {**state.arrays, "t": np.asarray(state.t, np.int64)}
        entries += [parameter_file.Entry(f"{key}/{name}", array, False) for name, array in arrays.items()]
    parameter_file.save(path, entries, ".safetensors")


def _read_safetensors(path: Path) -> dict[str, State]:
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    for entry in parameter_file.load(path, ".safetensors"):
        key, _, name = entry.name.rpartition("/")
        arrays.setdefault(key, {})[name] = entry.values
    return {key: _state(path, key, found) for key, found in arrays.items()}


def _state(path: Path, key: str, arrays: dict[str, NDArray[Any]]) -> State:
    """The state that these arrays are, `t` among them."""
    t = arrays.pop("t", None)
    if t is None or t.shape != () or t.dtype.kind not in "iu" or not 0 <= int(t) < 2**32:
        raise ParameterError(f"load_states: expected a number `t` of updates of {key!r}, got {t!r} in {path}")
    wrong = [name for name, array in arrays.items() if array.dtype.kind != "f"]
    if wrong:
        raise ParameterError(f"load_states: expected real numbers, got other values of {key!r}, {wrong[0]!r} in {path}")
    return State(int(t), arrays)


# --- HDF5: a group for each parameter, with its place as `index`; a dataset in it for each array, and `t`.


def _write_h5(path: Path, states: dict[str, State]) -> None:
    with _h5py("save_states").File(path, "w") as file:
        for index, (key, state) in enumerate(states.items()):
            try:
                group = file.create_group(key)
            except (TypeError, ValueError) as error:
                raise ParameterError(f"save_states: expected a name for .h5, got {key!r}: {error}") from error
            group.attrs["index"] = index
            group["t"] = np.asarray(state.t, np.int64)
            for place, (name, array) in enumerate(state.arrays.items()):
                group.create_dataset(name, data=array).attrs["index"] = place


def _h5py(op: str) -> Any:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise ImportError(
            f"{op}: expected the package h5py for .h5 files, got none; install it or use .safetensors"
        ) from error


def _read_h5(path: Path) -> dict[str, State]:
    h5py = _h5py("load_states")
    found: list[tuple[int, str, State]] = []

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Group) and "t" in node:
            members = {member: dataset for member, dataset in node.items() if isinstance(dataset, h5py.Dataset)}
            arrays = {
                member: np.asarray(members[member][()])
                for member in sorted(members, key=lambda m: int(members[m].attrs.get("index", 0)))
            }
            found.append((int(node.attrs.get("index", 0)), name, _state(path, name, arrays)))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except ParameterError:
        raise
    except Exception as error:  # h5py has a different error for each way in which a file can be broken.
        raise ParameterError(f"load_states: expected an HDF5 file of states, got {path}: {error}") from error
    return {name: state for _, name, state in sorted(found, key=lambda item: item[0])}


# --- protobuf: NNabla's `Optimizer` message.


def _write_protobuf(path: Path, states: dict[str, State]) -> None:
    path.write_bytes(solver_protobuf.encode((key, *state) for key, state in states.items()))


def _read_protobuf(path: Path) -> dict[str, State]:
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
