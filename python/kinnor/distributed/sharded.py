"""Sharded solvers: each process stores the states and updates the values of its share of the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import CallError, CommunicatorBackwardCallback, NdArray
from ..solvers import Solver, SolverState
from .arguments import dtype_of, variables
from .communicator import members_of
from .transport import CommunicatorError

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from .._core import Variable
    from .communicator import Communicator

__all__ = ["ShardedSolver"]


class ShardedSolver:
    """A solver with states divided over the processes. It computes the same updates as an ordinary solver.

    Each parameter belongs to one process, with about equally many values on each. `callback` sums gradients on the
    owner. `update` updates the own parameters and copies all parameters to all processes. Before `update`, methods such
    as `weight_decay` act on the process's own gradients, and norms and checks cover all gradients.

    Args:
        solver: Any solver without parameters.
        communicator: The processes.
        division: Whether gradients are divided by the number of processes.
        group: Name of the group.

    Examples:
        >>> import numpy as np
        >>> import kinnor as nn, kinnor.solvers as S, kinnor.functions as F
        >>> from kinnor.distributed import MultiProcessDataParallelCommunicator
        >>> comm = MultiProcessDataParallelCommunicator()
        >>> comm.init()
        >>> w = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
        >>> solver = ShardedSolver(S.Sgd(lr=0.5), comm)
        >>> solver.set_parameters({"w": w})
        >>> loss = F.sum(w * w)
        >>> loss.forward()
        >>> solver.zero_grad()
        >>> loss.backward(communicator_callbacks=solver.callback)
        >>> solver.update()
        >>> w.d.tolist()
        [0.0, 0.0]
    """

    def __init__(self, solver: Solver, communicator: Communicator, division: bool = True, group: str = "world") -> None:
        self._members = members_of("ShardedSolver", communicator, group)
        if not isinstance(solver, Solver):
            raise CallError(f"ShardedSolver: expected a solver, got {solver!r}")
        if len(solver.get_parameters()):
            raise CommunicatorError("ShardedSolver: expected a solver without parameters, got one that has some")
        self.solver = solver
        self.callback: CommunicatorBackwardCallback = _SumWhereOwned(self)
        self._communicator, self._group, self._division = communicator, group, division
        self._parameters: dict[str, Variable] = {}
        self._owned: list[list[str]] = [[] for _ in range(self._members.size)]
        self._is_summed = False
        self._flat: NDArray[Any] | None = None
        self._grads: NdArray | None = None

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the solver of this process."""
        # Methods on gradients or learning rates act on this process's own parameters.
        return getattr(self.solver, name)

    def set_parameters(self, parameters: Mapping[str, Variable]) -> None:
        """Set the parameters, and divide them among the processes.

        Args:
            parameters: float32 variables by name, the same on all processes.

        Raises:
            CommunicatorError: If the processes do not have the same parameters, or if one is not float32.
        """
        parameters = variables("ShardedSolver.set_parameters", parameters)
        self._communicator.check_parameters(parameters, self._group)
        wrong = next((name for name, v in parameters.items() if dtype_of(v.data) != np.float32), None)
        if wrong is not None:
            raise CommunicatorError(
                f"ShardedSolver: expected parameters of float32, got {dtype_of(parameters[wrong].data)} as {wrong!r}"
            )
        self._parameters = dict(parameters)
        self._owned = _divided(self._parameters, self._members.size)
        self.solver.set_parameters({name: parameters[name] for name in self._owned[self._members.rank]})
        self._flat = None

    def get_parameters(self) -> dict[str, Variable]:
        """All parameters by name, including parameters of other processes."""
        return dict(self._parameters)

    def owned(self) -> list[str]:
        """The names of the parameters that this process updates."""
        return list(self._owned[self._members.rank])

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for v in self._parameters.values():
            v.grad.zero()

    def update(self) -> None:
        """Update this process's own parameters, and copy all parameters to all processes.

        Raises:
            CommunicatorError: If gradients were not summed: `backward` did not get the callback.
        """
        if not self._is_summed:
            raise CommunicatorError(
                "ShardedSolver.update: expected summed gradients, got none: "
                "give `communicator_callbacks=solver.callback` to backward()"
            )
        if self.owned():  # there may be more processes than parameters
            self.solver.update()
        self._is_summed = False
        if self._members.size == 1:
            return
        counts = self._counts()
        own = [self._parameters[name].data.get_data("r").ravel() for name in self.owned()]
        gathered = np.empty(sum(counts), np.float32)
        with self._communicator._watched("all_gather of parameters"):
            self._members.all_gather(np.concatenate([*own, np.empty(0, np.float32)]), gathered, counts)
        start = 0
        for rank, names in enumerate(self._owned):
            for name in names:
                v = self._parameters[name]
                if rank != self._members.rank:
                    v.data.get_data("w")[...] = gathered[start : start + v.size].reshape(v.shape)
                start += v.size

    def clip_grad_by_global_norm(self, max_norm: float) -> float:
        """Scale all gradients so that their global norm is at most `max_norm`. All processes must call it.

        Gradients do not change if the norm is infinite or NaN.

        Args:
            max_norm: The largest norm; 0 clips nothing.

        Returns:
            The global norm before clipping.

        Raises:
            ArgumentError: If the norm is negative or not a number.
        """
        if self._members.size == 1:
            return self.solver.clip_grad_by_global_norm(max_norm)
        own = self.solver.clip_grad_by_global_norm(max_norm if not max_norm >= 0 else 0)  # raises for invalid norms
        norm = math.hypot(*(float.fromhex(told) for told in self._exchange("clip_grad_by_global_norm", own.hex())))
        if 0 < max_norm < norm < math.inf:
            self.solver.scale_grad(max_norm / norm)
        return norm

    def check_inf_grad(self) -> bool:
        """True if a gradient of any process is infinite. All processes must call it, and get the same answer."""
        return self._on_any_process("check_inf_grad", self.solver.check_inf_grad())

    def check_nan_grad(self) -> bool:
        """True if a gradient of any process is NaN. All processes must call it, and get the same answer."""
        return self._on_any_process("check_nan_grad", self.solver.check_nan_grad())

    def check_inf_or_nan_grad(self) -> bool:
        """True if a gradient of any process is infinite or NaN. All processes must call it and get the same answer."""
        return self._on_any_process("check_inf_or_nan_grad", self.solver.check_inf_or_nan_grad())

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Write the states of all parameters to one file, as an ordinary solver does. All processes must call it.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`. The first process writes it.

        Raises:
            ParameterError: If the format is unknown or cannot hold the states.
            OSError: If the file cannot be written.
            CommunicatorError: On the other processes, if the first one cannot write it.
        """
        from ..files.solver_file import State, save

        states = self.get_states()
        failure: Exception | None = None
        if self._members.rank == 0:
            arrays = {
                name: {n: v.data.get_data("r") for n, v in state.pstate.items()} for name, state in states.items()
            }
            try:
                save(path, {name: State(state.t, arrays[name]) for name, state in states.items()})
            except Exception as error:  # raised below, after the others were notified
                failure = error
        told = self._exchange("save_states", "" if failure is None else str(failure))[0]
        if failure is not None:
            raise failure
        if told:
            raise CommunicatorError(f"ShardedSolver.save_states: expected rank 0 to write {path}, got: {told}")

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Read the states of this process's own parameters from a file with all states.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

        Raises:
            ParameterError: If the file is malformed or its states do not belong to this kind of solver.
            GraphError: If the file has a parameter that was not set.
            OSError: If the file cannot be read.
        """
        from ..files.solver_file import load

        others = self._parameters.keys() - set(self.owned())
        self.solver._set_arrays({name: state for name, state in load(path).items() if name not in others})

    def get_states(self) -> dict[str, SolverState]:
        """The states of all parameters, gathered from all processes. All processes must call it."""
        from .._core import Variable

        own = self.solver.get_states()
        if self._members.size == 1:
            return own
        found: dict[str, SolverState] = {}
        for rank, names in enumerate(self._owned):
            here = rank == self._members.rank
            told = "\n".join(f"{name} {own[name].t} {' '.join(own[name].pstate)}" for name in names) if here else ""
            lines = self._exchange("get_states", told)[rank].split("\n") if names else []
            for name, line in zip(names, lines, strict=True):
                t, *states = line[len(name) + 1 :].split(" ")
                variables = {}
                for state in filter(None, states):
                    variables[state] = own[name].pstate[state] if here else Variable(self._parameters[name].shape)
                    values = np.ascontiguousarray(variables[state].d, np.float32)
                    with self._communicator._watched(f"get_states of ShardedSolver, {state!r} of {name!r}"):
                        self._members.broadcast(values, rank)
                    if not here:
                        variables[state].d = values
                found[name] = SolverState(variables, int(t))
        return found

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Set the states of this process's own parameters.

        Args:
            states: States of all parameters by name, as `get_states` returns them.
        """
        if not isinstance(states, Mapping):
            raise CallError(f"ShardedSolver.set_states: expected states by the names of parameters, got {states!r}")
        self.solver.set_states({name: states[name] for name in self.owned() if name in states})

    def _exchange(self, what: str, text: str) -> list[str]:
        """The texts of all processes, by rank."""
        with self._communicator._watched(f"{what} of ShardedSolver"):
            return self._members.exchange(text)

    def _on_any_process(self, what: str, own: bool) -> bool:
        """True if `own` is True on any process."""
        return "1" in self._exchange(what, str(int(own)))

    def _counts(self) -> list[int]:
        """The number of values that each process owns."""
        return [sum(self._parameters[name].size for name in names) for names in self._owned]

    def _sum(self) -> None:
        """Sums each gradient over processes, into the gradient of the parameter's owner."""
        if self._flat is None:
            self._arrange()
        flat = self._flat
        if flat is None:
            return
        counts = self._counts()
        start = sum(counts[: self._members.rank])
        own = np.empty(counts[self._members.rank], np.float32)
        with self._communicator._watched("reduce_scatter of gradients"):
            self._members.reduce_scatter(flat, own, counts)
        flat[start : start + own.size] = own / self._members.size if self._division else own
        self._is_summed = True

    def _arrange(self) -> None:
        """Moves the gradients into one flat array, ordered by owner."""
        array = NdArray((sum(self._counts()),))
        flat, start = array.get_data("w"), 0
        for name in (name for names in self._owned for name in names):
            v = self._parameters[name]
            flat[start : start + v.size] = v.grad.get_data("r").ravel()
            v.grad = array.narrow(0, start, v.size).view(v.shape)
            start += v.size
        self._grads, self._flat = array, flat


class _SumWhereOwned(CommunicatorBackwardCallback):
    """Sums gradients at the end of a backward run."""

    def __init__(self, solver: ShardedSolver) -> None:
        self._solver = solver

    def on_finish_backward(self) -> None:
        """Sums each gradient on its parameter's owner."""
        self._solver._sum()


def _divided(parameters: Mapping[str, Variable], n: int) -> list[list[str]]:
    """Divides parameters among `n` processes: names by process. Greedy: the largest first, to the least loaded."""
    owned: list[list[str]] = [[] for _ in range(n)]
    sizes = [0] * n
    for name in sorted(parameters, key=lambda name: -parameters[name].size):
        least = sizes.index(min(sizes))
        owned[least].append(name)
        sizes[least] += parameters[name].size
    return owned
