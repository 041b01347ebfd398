"""The base class of solvers: parameters, their states, and files of states. `kinnor.solvers` has the solvers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import CallError, NdArray, UnsupportedError, Variable
from ._suggest import absence

if TYPE_CHECKING:
    from .files.solver_file import State

__all__ = ["Solver", "SolverState"]


class SolverState:
    """The state of a solver for one parameter, such as momentum.

    Args:
        pstate: Variables by name.
        t: Number of updates so far.

    Raises:
        TypeError: If `pstate` is not a dict.
    """

    def __init__(self, pstate: dict[str, Variable] | None = None, t: int = 0) -> None:
        if pstate is not None and not isinstance(pstate, Mapping):
            raise CallError(f"SolverState: expected `pstate` to be a dict of Variables, got {pstate!r}")
        self.pstate = {} if pstate is None else pstate
        self.t = t

    def __repr__(self) -> str:
        return f"SolverState(t={self.t}, pstate={list(self.pstate)})"


class Solver(_core.Solver):
    """A solver: an update rule, its parameters and their states."""

    def setup(self, params: Any) -> None:
        """Raise an error: `set_parameters` replaces this deprecated method.

        Args:
            params: Ignored.

        Raises:
            RuntimeError: Always.
        """
        raise UnsupportedError(f"{self.name}.setup: expected a call of set_parameters, got the deprecated setup")

    def get_states(self) -> dict[str, SolverState]:
        """The states of all parameters.

        Returns:
            States by the names of parameters. Later updates change their arrays.
        """
        return {key: SolverState(_variables(arrays), t) for key, (t, arrays) in self._states().items()}

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Copy states to the parameters of the same names. Other parameters keep their states.

        If it fails, no state changes.

        Args:
            states: States by the names of parameters.

        Raises:
            GraphError: If a parameter was not set.
            ParameterError: If the arrays do not belong to this kind of solver.
            ShapeError: If an array does not have the shape of its parameter.
        """
        if not isinstance(states, Mapping):
            raise CallError(f"{self.name}.set_states: expected a SolverState for each parameter, got {states!r}")
        for key, state in states.items():
            if not isinstance(state, SolverState):
                raise CallError(f"{self.name}.set_states: expected a SolverState for {key!r}, got {state!r}")
        self._set_states(
            {key: (state.t, {name: v.data for name, v in state.pstate.items()}) for key, state in states.items()}
        )

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Write the states to a file, atomically.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`; NNabla reads the last two.

        Raises:
            ParameterError: If the format is unknown or cannot hold the states.
            OSError: If the file cannot be written.
        """
        from .files.solver_file import save

        save(path, self._arrays())

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Read states from a file. The parameters must have been set before.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

        Raises:
            ParameterError: If the file is malformed or its states do not belong to this kind of solver.
            GraphError: If the file has a parameter that was not set.
            OSError: If the file cannot be read.
        """
        from .files.solver_file import ENDINGS, load

        if _core.unwary() and not os.fspath(path).endswith(ENDINGS):
            from .logger import logger

            logger.warning(f"{path} is omitted.")  # as in NNabla
            return
        self._set_arrays(load(path))

    def set_states_to_protobuf(self, optimizer: Any) -> None:
        """Store the states in a protobuf message, in float32.

        Args:
            optimizer: NNabla's message `Optimizer`, or one of the same layout.
        """
        from .files.solver_protobuf import encode

        optimizer.MergeFromString(encode((key, *state) for key, state in self._arrays().items()))

    def set_states_from_protobuf(self, optimizer_proto: Any) -> None:
        """Read the states from a protobuf message. The parameters must have been set before.

        Args:
            optimizer_proto: NNabla's message `Optimizer`, or one of the same layout.

        Raises:
            ParameterError: If its states do not belong to this kind of solver.
            GraphError: If it has a parameter that was not set.
        """
        from .files.solver_file import State
        from .files.solver_protobuf import decode

        self._set_arrays({key: State(t, arrays) for key, t, arrays in decode(optimizer_proto.SerializeToString())})

    def _arrays(self) -> dict[str, State]:
        """The states as NumPy arrays, in their own precision."""
        from .files.solver_file import State

        return {
            key: State(t, {name: array.get_data("r") for name, array in arrays.items()})
            for key, (t, arrays) in self._states().items()
        }

    def _set_arrays(self, states: Mapping[str, State]) -> None:
        """Sets states from NumPy arrays."""
        arrays = {
            key: (state.t, {name: NdArray.from_numpy_array(array) for name, array in state.arrays.items()})
            for key, state in states.items()
        }
        self._set_states(arrays)


def _variables(arrays: dict[str, NdArray]) -> dict[str, Variable]:
    """Variables that share the arrays."""
    variables = {}
    for name, array in arrays.items():
        variables[name] = Variable(array.shape)
        variables[name].data = array
    return variables


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(absence(f"{__name__}.{name}"))
    # NNabla has the solver classes here as well.
    from . import solvers

    if name in solvers.__all__:
        return getattr(solvers, name)
    raise AttributeError(absence(f"{__name__}.{name}", solvers.__all__))
