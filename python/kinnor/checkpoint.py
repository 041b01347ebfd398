"""Checkpoints: save and resume a training program, atomically, in one process or several.

A checkpoint holds parameters, solver states, random generators, positions of data iterators, and positions of graphs
whose functions have a seed of their own or count their runs.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core, random
from ._check import explained
from ._core import CallError, NdArray, ParameterError
from .files import parameter_file
from .files.atomic import replacing, steadily
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
"""Name of the entry that holds everything but arrays, as JSON."""


class _Parts(NamedTuple):
    """The objects that a checkpoint saves or restores, by name."""

    parameters: dict[str, Variable]
    """The variables, as given or all parameters of the current scope."""
    solvers: dict[str, Solver | ShardedSolver]
    """The solvers, whose states and settings are saved."""
    iterators: dict[str, DataIterator]
    """The data iterators, whose positions are saved."""
    graphs: dict[str, Variable]
    """An output of each graph whose functions with a seed of their own or a count of runs are saved."""


_ELSEWHERE = {
    "dataloader": "iterators",
    "epoch": "write values={'epoch': epoch}",
    "loss": "write values={'loss': loss}",
    "model": "write parameters=model.state_dict()",
    "model_state_dict": "write parameters=model.state_dict()",
    "optimizer": "write solvers={'main': solver}",
    "optimizer_state_dict": "write solvers={'main': solver}",
    "params": "parameters",
    "solver": "write solvers={'main': solver}",
    "state_dict": "write parameters=model.state_dict()",
    "step": "write values={'step': step}",
}
"""Names that programs for PyTorch have for the parts of a checkpoint, and what to write."""


@explained("save_checkpoint", _ELSEWHERE, "the path, then arguments by name: parameters=model.state_dict()")
def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Variable] | None = None,
    solvers: Mapping[str, Solver | ShardedSolver] | None = None,
    iterators: Mapping[str, DataIterator] | None = None,
    graphs: Mapping[str, Variable] | None = None,
    values: Any = None,
    communicator: Communicator | None = None,
    shards: bool = False,
) -> None:
    """Save a training program so that it can resume. A crash during the call leaves the previous checkpoint intact.

    With a communicator, parameters that are divided over processes or pipeline stages are saved as whole arrays. The
    file has no learning rates.

    Args:
        path: Path of the file. With `shards`, more files with this name and a suffix are written to the same folder.
        parameters: Variables by name; by default `nn.get_parameters(grad_only=False)`.
        solvers: Solvers by names of your choice, with their states.
        iterators: Data iterators by names of your choice, with their positions.
        graphs: An output of each static graph by names of your choice. Functions with a seed of their own, such as
            `F.dropout(x, seed=7)`, go on after the numbers that they have drawn. `F.inq_affine` and
            `F.inq_convolution` go on counting their runs.
        values: Any value that JSON can hold, such as the number of the step. Numbers of NumPy are loaded as Python's.
        communicator: The processes of the program, which all call this; the first one writes.
        shards: True if each process writes its own file with the arrays that the first process lacks: states of a
            `ShardedSolver`, parts of divided layers, its stage of a pipeline. Otherwise the first process gathers them.

    Raises:
        ParameterError: If a name cannot be loaded again, or if processes have different arrays under one name.
        TypeError: If JSON cannot hold `values`.
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
    parts = _parts(op, parameters, solvers, iterators, graphs)
    rank, size = _rank_and_size(op, communicator)
    own = _arrays(parts, communicator is not None)
    drawn = {name: random.positions([y]) for name, y in parts.graphs.items()}
    state = {"random": _random_state(), "iterators": _positions(parts), "graphs": drawn}
    told = _exchange(communicator, json.dumps(state), op)
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
        text = np.frombuffer(
            json.dumps(about | {"shards": files, "joined": joined}, default=_as_json).encode(), np.uint8
        )
        flags = {name: table[name][4] for table in reversed(tables) for name in table}
        _write(target, [(ABOUT, text, False), *((name, array, flags[name]) for name, array in whole.items())])
        _remove_others(target, files)
    _exchange(communicator, "saved", op)


@explained("load_checkpoint", _ELSEWHERE, "the path, then arguments by name: parameters=model.state_dict()")
def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Variable] | None = None,
    solvers: Mapping[str, Solver | ShardedSolver] | None = None,
    iterators: Mapping[str, DataIterator] | None = None,
    graphs: Mapping[str, Variable] | None = None,
    communicator: Communicator | None = None,
) -> Any:
    """Resume from a checkpoint. The number of processes may differ from the number that saved it.

    With the same number of processes, training resumes bit for bit: each process gets its own random generators and
    iterator positions. With another number, all processes get the generators and positions of the first one.

    Args:
        path: Path of the file.
        parameters: Variables by the names under which they were saved; by default
            `nn.get_parameters(grad_only=False)`.
        solvers: Solvers by name, after `set_parameters`.
        iterators: Data iterators by name, made with the same arguments as the saved ones.
        graphs: An output of each graph by name, built as the saved ones.
        communicator: The processes of the program, which all call this.

    Returns:
        The `values` that were saved.

    Raises:
        ParameterError: If the file is malformed, lacks a requested array or has it in another shape. Also if an
            iterator cannot move to its position, or if a graph has other random functions. Nothing is changed then.
        OSError: If a file cannot be read.
    """
    parts = _parts("load_checkpoint", parameters, solvers, iterators, graphs)
    rank, _ = _rank_and_size("load_checkpoint", communicator)
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
        raise ParameterError(f"load_checkpoint: expected all processes to read {path}, got on another: {wrong}")
    before = {name: _copied(_own_solver(solver)) for name, solver in parts.solvers.items()}
    generators, positions = _random_state(), _positions(parts)
    drawn = {name: random.positions([y]) for name, y in parts.graphs.items()}
    moved: list[str] = []
    try:
        for name, solver in parts.solvers.items():
            solver.set_states(ready.states[name])
        for name, iterator in parts.iterators.items():
            _move(path, iterator, name, ready.process["iterators"][name])
            moved.append(name)
        for name, y in parts.graphs.items():
            random.set_positions([y], ready.process["graphs"][name], f"graph {name!r}")
        _set_random_state(path, ready.process["random"])
        # Arrays take the types of the file, as the run that wrote it had them.
        _core.assign_together([(v.data, ready.parameters[name]) for name, v in parts.parameters.items()])
    except BaseException:
        _set_random_state(path, generators)
        for name, y in parts.graphs.items():
            random.set_positions([y], drawn[name], name)
        for name in moved:
            with suppress(ValueError):  # Under NNabla's names an iterator cannot go back.
                parts.iterators[name].set_state(positions[name])
        for name, solver in parts.solvers.items():
            _own_solver(solver).set_states(before[name])
        raise
    return ready.values


def _as_json(value: Any) -> Any:
    """Returns a number of NumPy as JSON has it. Raises TypeError for what JSON cannot hold."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise TypeError(f"save_checkpoint: expected `values` that JSON can hold, got {type(value).__name__}")


def values_of(path: str | os.PathLike[str]) -> Any:
    """The `values` of a checkpoint, without its arrays.

    Args:
        path: Path of the file.

    Raises:
        ParameterError: If the file is malformed.
        OSError: If it cannot be read.
    """
    return _read(Path(path), lambda entry: False)[1]["values"]


def _parts(
    op: str,
    parameters: Mapping[str, Variable] | None,
    solvers: Mapping[str, Solver | ShardedSolver] | None,
    iterators: Mapping[str, DataIterator] | None,
    graphs: Mapping[str, Variable] | None,
) -> _Parts:
    """The objects of a checkpoint from the arguments of `save_checkpoint` or `load_checkpoint`."""
    known = get_parameters(grad_only=False) if parameters is None else parameters
    kinds = {
        "parameters": "Variables",
        "solvers": "solvers",
        "iterators": "data iterators",
        "graphs": "outputs of graphs",
    }
    for (name, what), given in zip(kinds.items(), (known, solvers, iterators, graphs), strict=True):
        if given is not None and not hasattr(given, "items"):
            hint = "; state_dict() of the module has them" if hasattr(given, "named_parameters") else ""
            if name == "solvers":
                hint = '; {"main": solver} names one'
            raise CallError(f"{op}: expected `{name}` to be {what} by name, got {type(given).__name__}{hint}")
    return _Parts(dict(known), dict(solvers or {}), dict(iterators or {}), dict(graphs or {}))


def _rank_and_size(op: str, communicator: Communicator | None) -> tuple[int, int]:
    """The rank of this process and the number of processes."""
    if communicator is None:
        return 0, 1
    from .distributed.communicator import members_of

    members = members_of(op, communicator)
    return members.rank, members.size


def _exchange(communicator: Communicator | None, text: str, op: str) -> list[str]:
    """The texts of all processes, by rank."""
    if communicator is None:
        return [text]
    members = communicator._members(op, "world")
    with communicator._watched(op):
        return members.exchange(text)


def _own_solver(solver: Solver | ShardedSolver) -> Solver:
    """The solver of this process's part of the parameters."""
    from .distributed import ShardedSolver

    return solver.solver if isinstance(solver, ShardedSolver) else solver


# --- Random generators and positions


def _random_state() -> dict[str, Any]:
    """The state of the generators of functions and of initializers, for JSON."""
    seed, offset = _core.random_state()
    kind, keys, position, has_normal, normal = random.prng.get_state(legacy=True)
    return {
        "functions": [seed, offset],
        "parameters": [str(kind), [int(key) for key in keys], int(position), int(has_normal), float(normal)],
    }


def _set_random_state(path: str | os.PathLike[str], state: Any) -> None:
    """Restores the result of `_random_state`. Raises ParameterError if a file has another one."""
    try:
        seed, offset = state["functions"]
        kind, keys, *rest = state["parameters"]
        random.prng.set_state((kind, np.asarray(keys, np.uint32), *rest))
        _core.restore_random(seed, offset)
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ParameterError(
            f"load_checkpoint: expected the states of random generators, got others in {path}"
        ) from error


def _move(path: str | os.PathLike[str], iterator: DataIterator, name: str, state: Any) -> None:
    """Moves an iterator to the position of a checkpoint. Raises ParameterError if it cannot."""
    try:
        iterator.set_state(state)
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ParameterError(
            f"load_checkpoint: expected a position that iterator {name!r} can move to, got {state} in {path}: {error}"
        ) from error


def _positions(parts: _Parts) -> dict[str, Any]:
    """The states of the data iterators by name."""
    return {name: iterator.state() for name, iterator in parts.iterators.items()}


# --- Parameters and states of solvers


class _Array(NamedTuple):
    """An array of a checkpoint, or this process's part of it."""

    values: NDArray[Any]
    """The values: of the whole array, or of this process's part of it."""
    spread: Spread | None
    """How the array is divided over processes, or None if it is not."""
    need_grad: bool
    """Whether a parameter is trained. False for states of solvers."""


def _arrays(parts: _Parts, is_joined: bool) -> dict[str, _Array]:
    """The arrays by their names in a checkpoint. If `is_joined`, only the arrays and parts of this process."""
    spreads = _spreads(parts) if is_joined else {}
    arrays = {
        f"parameters/{name}": _Array(v.data.get_data("r"), spreads.get(v.data), v.need_grad)
        for name, v in parts.parameters.items()
    }
    for name, solver in parts.solvers.items():
        source = _own_solver(solver) if is_joined else solver
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
    """Descriptions of this process's arrays for the other processes: shape, type, axis, ranks, `need_grad`."""
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
    """The division of each parameter that is divided over processes, by its array."""
    from .distributed.spread import spread_of

    known = [*get_parameters(grad_only=False).values(), *parts.parameters.values()]
    return {v.data: spread for v in known if (spread := spread_of(v)) is not None}


class _Ready(NamedTuple):
    """The contents of a checkpoint for this process."""

    parameters: dict[str, NDArray[Any]]
    """The values of each parameter."""
    states: dict[str, dict[str, SolverState]]
    """For each solver, the state of each of its parameters."""
    process: dict[str, Any]
    values: Any
    """The `values` that the program gave to `save_checkpoint`."""


def _ready(path: Path, parts: _Parts, keys: list[dict[str, list[str]]], rank: int, is_joined: bool) -> _Ready:
    """Reads the contents for this process. `keys` are each process's parameter names by solver."""
    variables = {name: _own_solver(solver).get_parameters() for name, solver in parts.solvers.items()}
    elsewhere = {name: {key for of in keys for key in of.get(name, ())} - set(variables[name]) for name in variables}

    def is_needed(entry: str) -> bool:
        """True if this process needs an entry of the checkpoint."""
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
    for what, named in (("iterator", parts.iterators), ("graph", parts.graphs)):
        missing = next((name for name in named if name not in process.get(f"{what}s", {})), None)
        if missing is not None:
            raise ParameterError(f"load_checkpoint: expected the position of {what} {missing!r}, got none in {path}")
    return _Ready(arrays, states, process, about["values"])


def _of_solver(
    path: Path,
    found: Mapping[str, NDArray[Any]],
    name: str,
    variables: Mapping[str, Variable],
    spreads: Mapping[NdArray, Spread],
) -> dict[str, SolverState]:
    """The states of one solver by parameter name. Of divided arrays, only this process's part.

    Args:
        path: Path of the checkpoint, for errors.
        found: The arrays of the checkpoint.
        name: Name of the solver in the checkpoint.
        variables: The solver's parameters by name.
        spreads: The divisions of parameters.
    """
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
    """Copies of the states of a solver."""
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
    """Writes arrays as (name, values, need_grad) to a file, atomically."""
    entries = [parameter_file.Entry(*each) for each in named]
    parameter_file.check_names("save_checkpoint", [entry.name for entry in entries])
    with replacing(path) as temporary:
        parameter_file.write_safetensors(temporary, entries)


def _entries(path: Path) -> list[parameter_file.Entry]:
    """All entries of a checkpoint's file."""
    return steadily("load_checkpoint", path, parameter_file.read_safetensors)


def _read(path: Path, is_needed: Callable[[str], bool]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The needed arrays of a checkpoint, and its JSON entry."""
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
        raise ParameterError(f"load_checkpoint: expected a checkpoint, got another file: {path}") from error
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
            raise ParameterError(
                f"load_checkpoint: expected all parts of {name!r}, got other ones in {path}"
            ) from error
    return found, about


def _remove_others(target: Path, files: list[str]) -> None:
    """Removes shard files of older checkpoints at the same path."""
    pattern = f"{target.name}.????????????????.*-of-*"
    for path in target.parent.glob(pattern):
        if path.name not in files:
            with suppress(OSError):
                path.unlink()
