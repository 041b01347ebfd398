"""Checkpoints: all that a training program needs to go on where it stopped, in one file set that is whole or not there.

Knows parameters, solvers, random generators and iterators, of one process or of several.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core, random
from ._core import NdArray, ParameterError
from .files import parameter_file
from .files.atomic import replacing
from .parameter import get_parameters
from .solver import SolverState

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ._core import Variable
    from .communicators import Communicator, ShardedSolver
    from .solver import Solver
    from .utils.data_iterator import DataIterator

__all__ = ["load_checkpoint", "save_checkpoint"]

ABOUT = "about"
"""Name of the entry that holds what is no array, as JSON."""


class _Parts(NamedTuple):
    """What is saved and loaded, each by its name."""

    parameters: dict[str, Variable]
    solvers: dict[str, Solver | ShardedSolver]
    iterators: dict[str, DataIterator]


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Variable] | None = None,
    solvers: Mapping[str, Solver | ShardedSolver] | None = None,
    iterators: Mapping[str, DataIterator] | None = None,
    values: Any = None,
    communicator: Communicator | None = None,
    shards: bool = False,
) -> None:
    """Write all that a program needs to go on: a crash at any moment leaves the checkpoint of before or this one.

    Args:
        path: Path of the file. With `shards` there are others beside it, whose names begin like its name.
        parameters: Variables by their names; those of `nn.get_parameters(grad_only=False)` by default.
        solvers: Solvers by names of your choice, with their states.
        iterators: Data iterators by names of your choice, with their positions.
        values: Anything that JSON can hold, such as the number of the step.
        communicator: The processes of the program, which all call this; the first one writes.
        shards: Whether each process writes the states of its own part of a `ShardedSolver`.

    Raises:
        ParameterError: If a name would not come back.
        OSError: If a file cannot be written.

    Examples:
        >>> import os, tempfile
        >>> import kinnor as nn, kinnor.solvers as S
        >>> path = os.path.join(tempfile.mkdtemp(), "run.checkpoint")
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> solver = S.Adam()
        >>> solver.set_parameters({"w": w})
        >>> save_checkpoint(path, parameters={"w": w}, solvers={"main": solver}, values={"step": 3})
        >>> w.d = 0
        >>> load_checkpoint(path, parameters={"w": w}, solvers={"main": solver})
        {'step': 3}
        >>> w.d.tolist()
        [1.0, 2.0]
    """
    parts = _parts(parameters, solvers, iterators)
    rank, size = (0, 1) if communicator is None else (communicator.rank, communicator.size)
    told = _exchange(communicator, json.dumps({"random": _random_state(), "iterators": _positions(parts)}))
    token = _exchange(communicator, secrets.token_hex(8))[0]
    states = _states(parts, gathered=not shards)
    target = Path(path)
    files: list[str] = []
    if shards:
        files = [f"{target.name}.{token}.{n}-of-{size}" for n in range(size)]
        _write(target.with_name(files[rank]), states)
        states = []
        _exchange(communicator, "written")
    if rank == 0:
        about = {"kinnor": 1, "processes": [json.loads(text) for text in told], "values": values, "shards": files}
        entries = [
            parameter_file.Entry(f"parameters/{name}", v.data.get_data("r"), v.need_grad)
            for name, v in parts.parameters.items()
        ]
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        _write(target, [parameter_file.Entry(ABOUT, text, False), *entries, *states])
        _remove_others(target, files)
    _exchange(communicator, "saved")


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Variable] | None = None,
    solvers: Mapping[str, Solver | ShardedSolver] | None = None,
    iterators: Mapping[str, DataIterator] | None = None,
    communicator: Communicator | None = None,
) -> Any:
    """Read a checkpoint. The number of processes may be another one than that which saved it.

    The same number of processes goes on with the same bits: random generators and positions are those of each process.
    Another number takes the positions and generators of the first one.

    Args:
        path: Path of the file.
        parameters: Variables by the names that they were saved under; those of `nn.get_parameters(grad_only=False)`
            by default.
        solvers: Solvers with their parameters set, by their names.
        iterators: Data iterators that were made as those that were saved, by their names.
        communicator: The processes of the program, which all call this.

    Returns:
        The `values` that were saved.

    Raises:
        ParameterError: If the file is malformed, or if it does not have what is asked for in the right shape. Nothing
            is changed then.
        OSError: If a file cannot be read.
    """
    parts = _parts(parameters, solvers, iterators)
    rank, size = (0, 1) if communicator is None else (communicator.rank, communicator.size)
    found, about = _read(Path(path))
    arrays = {name: found.get(f"parameters/{name}") for name in parts.parameters}
    for name, v in parts.parameters.items():
        values = arrays[name]
        if values is None or values.shape != v.shape:
            got = "none" if values is None else f"{values.shape}"
            raise ParameterError(
                f"load_checkpoint: expected parameter {name!r} of shape {v.shape}, got {got} in {path}"
            )
    states = {name: _of_solver(path, found, name) for name in parts.solvers}
    processes = about["processes"]
    own = processes[rank if len(processes) == size else 0]
    missing = next((name for name in parts.iterators if name not in own["iterators"]), None)
    if missing is not None:
        raise ParameterError(f"load_checkpoint: expected the position of iterator {missing!r}, got none in {path}")
    before = {name: _copied(_own(solver)) for name, solver in parts.solvers.items()}
    try:
        for name, solver in parts.solvers.items():
            solver.set_states(states[name])
    except BaseException:
        for name, solver in parts.solvers.items():
            _own(solver).set_states(before[name])
        raise
    for name, v in parts.parameters.items():
        v.data.get_data("w")[...] = arrays[name]
    _set_random_state(own["random"])
    for name, iterator in parts.iterators.items():
        iterator.set_state(own["iterators"][name])
    return about["values"]


def _parts(
    parameters: Mapping[str, Variable] | None,
    solvers: Mapping[str, Solver | ShardedSolver] | None,
    iterators: Mapping[str, DataIterator] | None,
) -> _Parts:
    known = get_parameters(grad_only=False) if parameters is None else parameters
    return _Parts(dict(known), dict(solvers or {}), dict(iterators or {}))


def _exchange(communicator: Communicator | None, text: str) -> list[str]:
    if communicator is None:
        return [text]
    return communicator._members("checkpoint", "world").exchange(text)


def _own(solver: Solver | ShardedSolver) -> Solver:
    """The solver of this process's part of the parameters."""
    from .communicators import ShardedSolver

    return solver.solver if isinstance(solver, ShardedSolver) else solver


# --- Random generators and positions


def _random_state() -> dict[str, Any]:
    seed, offset = _core.random_state()
    kind, keys, position, has_normal, normal = random.prng.get_state(legacy=True)
    return {
        "functions": [seed, offset],
        "parameters": [str(kind), [int(key) for key in keys], int(position), int(has_normal), float(normal)],
    }


def _set_random_state(state: Any) -> None:
    _core.restore_random(*state["functions"])
    kind, keys, *rest = state["parameters"]
    random.prng.set_state((kind, np.asarray(keys, np.uint32), *rest))


def _positions(parts: _Parts) -> dict[str, Any]:
    return {name: iterator.state() for name, iterator in parts.iterators.items()}


# --- States of solvers


def _states(parts: _Parts, gathered: bool) -> list[parameter_file.Entry]:
    entries = []
    for name, solver in parts.solvers.items():
        source = solver if gathered else _own(solver)
        for key, state in source.get_states().items():
            arrays = {each: v.data.get_data("r") for each, v in state.pstate.items()}
            arrays["t"] = np.asarray(state.t, np.int64)
            entries += [
                parameter_file.Entry(f"solvers/{name}/{key}/{each}", values, False) for each, values in arrays.items()
            ]
    return entries


def _of_solver(path: Any, found: Mapping[str, NDArray[Any]], name: str) -> dict[str, SolverState]:
    prefix = f"solvers/{name}/"
    states: dict[str, SolverState] = {}
    for entry, values in found.items():
        if not entry.startswith(prefix):
            continue
        key, _, each = entry[len(prefix) :].rpartition("/")
        state = states.setdefault(key, SolverState())
        if each == "t":
            state.t = int(values)
        else:
            v = _core.Variable(values.shape)
            v.data = NdArray.from_numpy_array(values)
            state.pstate[each] = v
    if not states:
        raise ParameterError(f"load_checkpoint: expected states of solver {name!r}, got none in {path}")
    return states


def _copied(solver: Solver) -> dict[str, SolverState]:
    copies = {}
    for key, state in solver.get_states().items():
        variables = {}
        for name, v in state.pstate.items():
            variables[name] = _core.Variable(v.shape)
            variables[name].data = NdArray.from_numpy_array(v.d.copy())
        copies[key] = SolverState(variables, state.t)
    return copies


# --- Files


def _write(path: Path, entries: Iterable[parameter_file.Entry]) -> None:
    entries = list(entries)
    parameter_file.check_names("save_checkpoint", [entry.name for entry in entries])
    with replacing(path) as temporary:
        parameter_file.write_safetensors(temporary, entries)


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a checkpoint, and what else it says."""
    found = {entry.name: entry.values for entry in parameter_file.read_safetensors(path)}
    text = found.pop(ABOUT, np.zeros(0, np.uint8)).tobytes()
    try:
        about = json.loads(text)
        shards = [str(name) for name in about["shards"]]
        is_known = about["kinnor"] == 1 and all(set(own) >= {"random", "iterators"} for own in about["processes"])
        is_known = is_known and len(about["processes"]) > 0 and "values" in about
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ParameterError(f"load_checkpoint: expected a checkpoint, got {path}, which is none") from error
    if not is_known or any(Path(name).name != name for name in shards):
        raise ParameterError(f"load_checkpoint: expected a checkpoint of this version, got another in {path}")
    for name in shards:
        found |= {entry.name: entry.values for entry in parameter_file.read_safetensors(path.with_name(name))}
    return found, about


def _remove_others(target: Path, files: list[str]) -> None:
    """Remove shards that the checkpoint does not name any more."""
    pattern = f"{target.name}.????????????????.*-of-*"
    for path in target.parent.glob(pattern):
        if path.name not in files:
            with suppress(OSError):
                path.unlink()
