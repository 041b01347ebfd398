"""Solvers: what moves parameters along their gradients.

The classes are made from the registry of the core; only what touches files is written here.
"""

from __future__ import annotations

import os
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import NdArray, Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Solver", "SolverState"]


class SolverState:
    """What a solver remembers of one parameter.

    Args:
        pstate: Variables by name.
        t: Number of updates so far.
    """

    def __init__(self, pstate: dict[str, Variable] | None = None, t: int = 0) -> None:
        self.pstate = {} if pstate is None else pstate
        self.t = t

    def __repr__(self) -> str:
        return f"SolverState(pstate={self.pstate!r}, t={self.t})"


class Solver(_core.Solver):
    """A solver: its rule, and the parameters that follow it with their states."""

    def setup(self, params: Any) -> None:
        """Refuse: `set_parameters` took its place.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(f"{self.name}.setup: expected a call of set_parameters, got the deprecated setup")

    def get_states(self) -> dict[str, SolverState]:
        """Show what the solver remembers.

        Returns:
            States by the names of parameters; their arrays go on changing with updates.
        """
        return {key: SolverState(_variables(arrays), t) for key, (t, arrays) in self._states().items()}

    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Take copies of states for the parameters of these names; others keep theirs.

        Args:
            states: States by the names of parameters.

        Raises:
            GraphError: If a parameter was not set.
            ParameterError: If the arrays are not those of this solver.
            ShapeError: If one does not have the shape of its parameter. Nothing is changed then.
        """
        self._set_states(
            {key: (state.t, {name: v.data for name, v in state.pstate.items()}) for key, state in states.items()}
        )

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Write the states to a file, whole or not at all.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`; the last two are in NNabla's layout.

        Raises:
            ParameterError: If the format is unknown or cannot hold the states.
            OSError: If the file cannot be written.
        """
        from .solver_file import State, save

        states = {key: State(t, {name: a.data for name, a in arrays.items()}) for key, (t, arrays) in self._states().items()}
        save(path, states)

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Read states from a file for parameters that were set before.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

        Raises:
            ParameterError: If the file is malformed or its states are not those of this solver.
            GraphError: If the file has a parameter that was not set.
            OSError: If the file cannot be read.
        """
        from .solver_file import load

        arrays = {
            key: (state.t, {name: NdArray.from_numpy_array(array) for name, array in state.arrays.items()})
            for key, state in load(path).items()
        }
        self._set_states(arrays)


def _variables(arrays: dict[str, NdArray]) -> dict[str, Variable]:
    variables = {}
    for name, array in arrays.items():
        variables[name] = Variable(array.shape)
        variables[name].data = array
    return variables


def _class(name: str, doc: str, args: list[tuple[str, str, Any]]) -> type[Solver]:
    """The class of a row of the registry."""

    def new(cls: type[Solver], *args: Any, **kwargs: Any) -> Solver:
        return _core.Solver.__new__(cls, name, *args, **kwargs)

    parameters = [Parameter(a, Parameter.POSITIONAL_OR_KEYWORD, default=d, annotation=t) for a, t, d in args]
    body = {"__doc__": doc, "__new__": new, "__module__": __name__, "__signature__": Signature(parameters)}
    return type(name, (Solver,), body)


for _row in _core._solvers():
    globals()[_row[0]] = _class(*_row)
    __all__ += [_row[0]]
