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
from .files.steady import steadily
from .parameter import get_parameters
from .solvers import SolverState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from ._core import Variable
    from .data.data_iterator import DataIterator
    from .distributed import Communicator, ShardedSolver
    from .distributed.spread import Spread
    from .solvers import Solver

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

    With a communicator, parameters that are spread over processes and those of a pipeline's places are saved as the
    arrays of one process.

    Args:
        path: Path of the file. With `shards` there are others beside it, whose names begin like its name.
        parameters: Variables by their names; those of `nn.get_parameters(grad_only=False)` by default.
        solvers: Solvers by names of your choice, with their states.
        iterators: Data iterators by names of your choice, with their positions.
        values: Anything that JSON can hold, such as the number of the step.
        communicator: The processes of the program, which all call this; the first one writes.
        shards: Whether each process writes to a file of its own what the first one does not have: states of a
            `ShardedSolver`, parts of spread layers, its place of a pipeline. Otherwise the first one collects them.

    Raises:
        ParameterError: If a name would not come back, or if processes have different arrays under one name.
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
    from .distributed.spread import gathered, sources

    op = "save_checkpoint"
    parts = _parts(parameters, solvers, iterators)
    rank, size = _place(op, communicator)
    own = _arrays(parts, communicator is not None)
    told = _exchange(communicator, json.dumps({"random": _random_state(), "iterators": _positions(parts)}), op)
    token = _exchange(communicator, secrets.token_hex(8), op)[0]
    tables = [json.loads(text) for text in _exchange(communicator, json.dumps(_table(own)), op)]
    places = sources(tables)
    values_of = {name: array.values for name, array in own.items()}
    target = Path(path)
    files: list[str] = []
    joined: dict[str, Any] = {}
    if shards:
        files = [f"{target.name}.{token}.{n}-of-{size}" for n in range(size)]
        apart = {name for name, place in places.items() if name.startswith("solvers/") or place.ranks != [0]}
        joined = {name: place for name, place in places.items() if place.axis is not None}
        mine = [name for name in apart if rank in places[name].ranks]
        _write(target.with_name(files[rank]), [(name, values_of[name], own[name].need_grad) for name in sorted(mine)])
        whole = {name: values_of[name] for name in places if name not in apart and name in own}
        _exchange(communicator, "written", op)
    else:
        whole = values_of if communicator is None else gathered(values_of, places, tables, communicator)
    if rank == 0:
        about = {"kinnor": 1, "processes": [json.loads(text) for text in told], "values": values}
        text = np.frombuffer(json.dumps(about | {"shards": files, "joined": joined}).encode(), np.uint8)
        flags = {name: table[name][4] for table in reversed(tables) for name in table}
        _write(target, [(ABOUT, text, False), *((name, array, flags[name]) for name, array in whole.items())])
        _remove_others(target, files)
    _exchange(communicator, "saved", op)


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Variable] | None = None,
    solvers: Mapping[str, Solver | ShardedSolver] | None = None,
    iterators: Mapping[str, DataIterator] | None = None,
    communicator: Communicator | None = None,
) -> Any:
    """Read a checkpoint. The number of processes may be another one than that which saved it: each takes its parts.

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
    rank, _ = _place("load_checkpoint", communicator)
    keys = {name: list(solver.get_parameters()) for name, solver in parts.solvers.items()}
    others = [json.loads(text) for text in _exchange(communicator, json.dumps(keys), "load_checkpoint")]
    ready, failure = None, None
    try:
        ready = _ready(Path(path), parts, others, rank, communicator is not None)
    except (ParameterError, OSError) as error:
        failure = error
    told = _exchange(communicator, "" if failure is None else str(failure), "load_checkpoint")
    if failure is not None:
        raise failure
    wrong = next((text for text in told if text), None)
    if ready is None or wrong is not None:
        raise ParameterError(f"load_checkpoint: expected all processes to read {path}, got on another one: {wrong}")
    before = {name: _copied(_own(solver)) for name, solver in parts.solvers.items()}
    try:
        for name, solver in parts.solvers.items():
            solver.set_states(ready.states[name])
    except BaseException:
        for name, solver in parts.solvers.items():
            _own(solver).set_states(before[name])
        raise
    for name, v in parts.parameters.items():
        v.data.get_data("w")[...] = ready.parameters[name]
    _set_random_state(ready.process["random"])
    for name, iterator in parts.iterators.items():
        iterator.set_state(ready.process["iterators"][name])
    return ready.values


def _parts(
    parameters: Mapping[str, Variable] | None,
    solvers: Mapping[str, Solver | ShardedSolver] | None,
    iterators: Mapping[str, DataIterator] | None,
) -> _Parts:
    known = get_parameters(grad_only=False) if parameters is None else parameters
    return _Parts(dict(known), dict(solvers or {}), dict(iterators or {}))


def _place(op: str, communicator: Communicator | None) -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if communicator is None:
        return 0, 1
    from .distributed.communicator import members_of

    members = members_of(op, communicator)
    return members.rank, members.size


def _exchange(communicator: Communicator | None, text: str, op: str) -> list[str]:
    if communicator is None:
        return [text]
    members = communicator._members(op, "world")
    with communicator._watched(op):
        return members.exchange(text)


def _own(solver: Solver | ShardedSolver) -> Solver:
    """The solver of this process's part of the parameters."""
    from .distributed import ShardedSolver

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


# --- Parameters and states of solvers


class _Array(NamedTuple):
    """What this process has of an array."""

    values: NDArray[Any]
    spread: Spread | None
    need_grad: bool


def _arrays(parts: _Parts, is_joined: bool) -> dict[str, _Array]:
    """The arrays by their names in a checkpoint: those that this process has, if those of all are joined."""
    spreads = _spreads(parts) if is_joined else {}
    arrays = {
        f"parameters/{name}": _Array(v.data.get_data("r"), spreads.get(v.data), v.need_grad)
        for name, v in parts.parameters.items()
    }
    for name, solver in parts.solvers.items():
        source = _own(solver) if is_joined else solver
        variables = source.get_parameters()
        for key, state in source.get_states().items():
            spread = spreads.get(variables[key].data)
            for each, v in state.pstate.items():
                is_part = v.shape == variables[key].shape
                arrays[f"solvers/{name}/{key}/{each}"] = _Array(
                    v.data.get_data("r"), spread if is_part else None, False
                )
            arrays[f"solvers/{name}/{key}/t"] = _Array(np.asarray(state.t, np.int64), None, False)
    return arrays


def _table(arrays: Mapping[str, _Array]) -> dict[str, Any]:
    """What the processes tell each other of their arrays."""
    return {
        name: [
            array.values.shape,
            array.values.dtype.name,
            array.spread and array.spread.axis,
            array.spread and array.spread.ranks,
            array.need_grad,
        ]
        for name, array in arrays.items()
    }


def _spreads(parts: _Parts) -> dict[NdArray, Spread]:
    """How parameters are spread over processes, by their arrays."""
    from .distributed.spread import spread_of

    known = [*get_parameters(grad_only=False).values(), *parts.parameters.values()]
    return {v.data: spread for v in known if (spread := spread_of(v)) is not None}


class _Ready(NamedTuple):
    """What a checkpoint has for this process."""

    parameters: dict[str, NDArray[Any]]
    states: dict[str, dict[str, SolverState]]
    process: dict[str, Any]
    values: Any


def _ready(path: Path, parts: _Parts, keys: list[dict[str, list[str]]], rank: int, is_joined: bool) -> _Ready:
    """Read what this process needs; `keys` are the parameters of the solvers of all processes."""
    variables = {name: _own(solver).get_parameters() for name, solver in parts.solvers.items()}
    elsewhere = {name: {key for of in keys for key in of.get(name, ())} - set(variables[name]) for name in variables}

    def is_needed(entry: str) -> bool:
        kind, _, rest = entry.partition("/")
        if kind == "parameters":
            return rest in parts.parameters
        return any(
            rest.startswith(f"{name}/") and rest[len(name) + 1 :].rpartition("/")[0] not in keys_elsewhere
            for name, keys_elsewhere in elsewhere.items()
        )

    found, about = _read(path, is_needed)
    spreads = _spreads(parts) if is_joined else {}
    arrays = {}
    for name, v in parts.parameters.items():
        values, spread = found.get(f"parameters/{name}"), spreads.get(v.data)
        shape = v.shape if spread is None else spread.shape
        if values is None or values.shape != shape:
            got = "none" if values is None else f"{values.shape}"
            raise ParameterError(f"load_checkpoint: expected parameter {name!r} of shape {shape}, got {got} in {path}")
        arrays[name] = values if spread is None else spread.take(values)
    states = {name: _of_solver(path, found, name, variables[name], spreads) for name in variables}
    processes = about["processes"]
    process = processes[rank if len(processes) == len(keys) else 0]
    missing = next((name for name in parts.iterators if name not in process["iterators"]), None)
    if missing is not None:
        raise ParameterError(f"load_checkpoint: expected the position of iterator {missing!r}, got none in {path}")
    return _Ready(arrays, states, process, about["values"])


def _of_solver(
    path: Path,
    found: Mapping[str, NDArray[Any]],
    name: str,
    variables: Mapping[str, Variable],
    spreads: Mapping[NdArray, Spread],
) -> dict[str, SolverState]:
    prefix = f"solvers/{name}/"
    states: dict[str, SolverState] = {}
    for entry, array in found.items():
        if not entry.startswith(prefix):
            continue
        key, _, each = entry[len(prefix) :].rpartition("/")
        state = states.setdefault(key, SolverState())
        if each == "t":
            state.t = int(array)
        else:
            spread = spreads.get(variables[key].data) if key in variables else None
            values = array if spread is None or array.shape != spread.shape else spread.take(array)
            v = _core.Variable(values.shape)
            v.data = NdArray.from_numpy_array(values)
            state.pstate[each] = v
    if variables and not states:
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


def _write(path: Path, named: Iterable[tuple[str, NDArray[Any], bool]]) -> None:
    entries = [parameter_file.Entry(*each) for each in named]
    parameter_file.check_names("save_checkpoint", [entry.name for entry in entries])
    with replacing(path) as temporary:
        parameter_file.write_safetensors(temporary, entries)


def _entries(path: Path) -> list[parameter_file.Entry]:
    return steadily("load_checkpoint", path, parameter_file.read_safetensors)


def _read(path: Path, is_needed: Callable[[str], bool]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a checkpoint that are needed, and what else it says."""
    found = {entry.name: entry.values for entry in _entries(path)}
    text = found.pop(ABOUT, np.zeros(0, np.uint8)).tobytes()
    try:
        about = json.loads(text)
        shards = [str(name) for name in about["shards"]]
        joined = {
            str(name): (int(axis), [shards[int(n)] for n in ranks])
            for name, (ranks, axis) in about.get("joined", {}).items()
        }
        is_known = about["kinnor"] == 1 and all(set(own) >= {"random", "iterators"} for own in about["processes"])
        is_known = is_known and len(about["processes"]) > 0 and "values" in about
    except (AttributeError, IndexError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ParameterError(f"load_checkpoint: expected a checkpoint, got {path}, which is none") from error
    if not is_known or any(Path(name).name != name for name in shards):
        raise ParameterError(f"load_checkpoint: expected a checkpoint of this version, got another in {path}")
    found = {name: array for name, array in found.items() if is_needed(name)}
    parts: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in joined if is_needed(name)}
    for shard in shards:
        for entry in _entries(path.with_name(shard)):
            if entry.name in parts:
                parts[entry.name][shard] = entry.values
            elif is_needed(entry.name):
                found[entry.name] = entry.values
    for name, pieces in parts.items():
        axis, files = joined[name]
        try:
            found[name] = np.concatenate([pieces[file] for file in files], axis)
        except (KeyError, ValueError, IndexError) as error:
            raise ParameterError(f"load_checkpoint: expected the parts of {name!r}, got others in {path}") from error
    return found, about


def _remove_others(target: Path, files: list[str]) -> None:
    """Remove shards that the checkpoint does not name any more."""
    pattern = f"{target.name}.????????????????.*-of-*"
    for path in target.parent.glob(pattern):
        if path.name not in files:
            with suppress(OSError):
                path.unlink()
