"""Solvers: classes that update parameters by their gradients, such as `Sgd` and `Adam`.

The classes, with signatures and docstrings, are generated from the registry of the core.

    >>> import kinnor as nn, kinnor.functions as F, kinnor.solvers as S
    >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    >>> solver = S.Sgd(lr=0.5)
    >>> solver.set_parameters({"w": w})
    >>> loss = F.sum(w * w)
    >>> loss.forward()
    >>> solver.zero_grad()
    >>> loss.backward()
    >>> solver.update()
    >>> w.d.tolist()
    [0.0, 0.0]
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from . import _check, _core
from ._core import CallError, NdArray, UnsupportedError, Variable
from ._suggest import absent, lacks, question

if TYPE_CHECKING:
    from .core import Module
    from .files.solver_file import State


class SolverState:
    """The state of a solver for one parameter.

    Args:
        pstate: Variables by name.
        t: Number of updates so far.

    Raises:
        TypeError: If `pstate` is no dict.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> solver = S.Momentum(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> w.g = [0.5, -1.0]
        >>> solver.update()
        >>> solver.get_states()["w"]
        SolverState(t=1, pstate=['m'])
    """

    def __init__(self, pstate: dict[str, Variable] | None = None, t: int = 0) -> None:
        if pstate is not None and not isinstance(pstate, Mapping):
            raise CallError(f"SolverState: expected `pstate` to be a dict of Variables, got {pstate!r}")
        self.pstate = {} if pstate is None else pstate
        self.t = t

    def __repr__(self) -> str:
        return f"SolverState(t={self.t}, pstate={list(self.pstate)})"


class Solver(_core.Solver):
    """A solver: its rule, and the parameters that follow it with their states.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> solver = S.Sgd(lr=0.5)
        >>> isinstance(solver, S.Solver)
        True
        >>> solver.set_parameters({"w": w})
        >>> loss = F.sum(w * w)
        >>> loss.forward()
        >>> solver.zero_grad()
        >>> loss.backward()
        >>> solver.update()
        >>> w.d
        array([0., 0.])
    """

    _arguments: dict[str, Any]

    def set_parameters(
        self,
        param_dict: Mapping[str, Variable] | Module | Iterable[Variable] | Iterable[tuple[str, Variable]],
        reset: bool = True,
        retain_state: bool = False,
    ) -> None:
        """Take parameters to update.

        Args:
            param_dict: Variables by name, a module, variables, or pairs of a name and a variable. Of a module those
                parameters are taken that need a gradient.
            reset: True to forget all parameters and states of before.
            retain_state: True to let a parameter whose name was there take over its states, without `reset`.

        Raises:
            CallError: If `param_dict` is something else.
            ParameterError: If a module has no parameters, as before the first call of one without layers.
            ShapeError: If states to take over have another shape. Nothing is changed then.

        Examples:
            >>> import kinnor.layers as L, kinnor.solvers as S
            >>> solver = S.Adam()
            >>> solver.set_parameters(L.Linear(3, 2))
            >>> list(solver.get_parameters())
            ['W', 'b']
        """
        if not isinstance(param_dict, dict):
            from .parameter_groups import named

            param_dict = named(f"{self.name}.set_parameters", param_dict)
        super().set_parameters(param_dict, reset, retain_state)

    def add_group(
        self,
        params: Mapping[str, Variable] | Module | Iterable[Variable] | Iterable[tuple[str, Variable]],
        *,
        weight_decay: float | None = None,
        **arguments: Any,
    ) -> Solver:
        """Give parameters a learning rate, a weight decay or other arguments of their own.

        Parameters that the solver has move to the group with their states; others are added. All methods of the solver
        cover its groups. `set_learning_rate` keeps the ratio of rates, so that schedules hold for all groups.
        `set_parameters` removes the groups, unless it is called with `reset=False`.

        Args:
            params: Parameters, as `set_parameters` takes them.
            weight_decay: Rate that each update of the group applies in the way of the method `weight_decay`; 0 for no
                decay. By default the group follows calls of that method. `AdamW` and `SgdW` take `wd` instead.
            **arguments: Arguments of the class, such as the learning rate, in place of the solver's.

        Returns:
            The group, a solver of the same rule: to set its rate alone, for example.

        Raises:
            CallError: If the class has no such argument.
            ParameterError: If there are no parameters, or if a new one has the name of another one.

        Examples:
            >>> import kinnor.layers as L, kinnor.solvers as S
            >>> network = L.Sequential(("body", L.Linear(3, 4)), ("head", L.Linear(4, 2)))
            >>> solver = S.Adam(alpha=1e-4)
            >>> solver.set_parameters(network)
            >>> head = solver.add_group(network[1], alpha=1e-3, weight_decay=0.01)
            >>> list(head.get_parameters())
            ['@head/W', '@head/b']
            >>> solver.set_learning_rate(5e-5)
            >>> round(head.learning_rate(), 6)
            0.0005
        """
        from .parameter_groups import Groups, check_group

        own = next(cls for cls in type(self).__mro__ if _classes.get(cls.__name__) is cls)
        known = own.__signature__.parameters  # type: ignore[attr-defined]
        given = {**self._arguments, next(iter(known)): self.learning_rate(), **arguments}
        if weight_decay is not None:
            if "wd" in known:
                hint = _instead("weight_decay", known)
                raise CallError(f"{self.name}.add_group: expected `wd`, got an argument 'weight_decay'{hint}")
            weight_decay = _check.number(f"{self.name}.add_group", "weight_decay", weight_decay)
        group: Solver = own(**given)
        found, moving = check_group(self, params)
        states = {key: state for key, state in self._states().items() if key in moving}
        group.set_parameters(found)
        group._set_states(states)
        if not isinstance(self, Groups):
            kind = type(self)
            self.__class__ = type(
                kind.__name__, (Groups, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__}
            )
            self.__dict__.update(_groups=[], _decays=[], _ratios=[])
        self.remove_parameters(moving)
        held: Any = self
        held._groups.append(group)
        held._decays.append(weight_decay)
        held._ratios.append(group.learning_rate() / self.learning_rate() if self.learning_rate() else None)
        return group

    @property
    def groups(self) -> list[Solver]:
        """The groups that were added, in order."""
        return list(self.__dict__.get("_groups", ()))

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if name in _FIXED and type(self).__module__ == __name__:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r} to set; set_learning_rate(rate) changes "
                    "the learning rate, and add_group gives parameters other arguments"
                )
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            lacks(self, name, "SOLVER")

    def setup(self, params: Any) -> None:
        """Refuse: `set_parameters` took its place.

        Args:
            params: Not looked at.

        Raises:
            RuntimeError: Always.
        """
        raise UnsupportedError(f"{self.name}.setup: expected a call of set_parameters, got the deprecated setup")

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
            ParameterError: If this solver has other arrays.
            ShapeError: If one does not have the shape of its parameter. Nothing is changed then.
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
        """Write the states to a file, whole or not at all.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`; the last two are in NNabla's layout.

        Raises:
            ParameterError: If the format is unknown or cannot hold the states.
            OSError: If the file cannot be written.
        """
        from .files.solver_file import save

        save(path, self._arrays())

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Read states from a file for parameters that were set before.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

        Raises:
            ParameterError: If the file is malformed or has states of another solver.
            GraphError: If the file has a parameter that was not set.
            OSError: If the file cannot be read.
        """
        from .files.solver_file import ENDINGS, load

        if _core.is_nnabla() and not os.fspath(path).endswith(ENDINGS):
            from .logger import logger

            logger.warning(f"{path} is omitted.")  # NNabla passes over it, too.
            return
        self._set_arrays(load(path))

    def set_states_to_protobuf(self, optimizer: Any) -> None:
        """Put the states into a protobuf message.

        Args:
            optimizer: NNabla's message `Optimizer`, or any of its layout; single precision is all that it holds.
        """
        from .files.solver_protobuf import encode

        optimizer.MergeFromString(encode((key, *state) for key, state in self._arrays().items()))

    def set_states_from_protobuf(self, optimizer_proto: Any) -> None:
        """Take the states of a protobuf message for parameters that were set before.

        Args:
            optimizer_proto: NNabla's message `Optimizer`, or any of its layout.

        Raises:
            ParameterError: If its states are of another solver.
            GraphError: If it has a parameter that was not set.
        """
        from .files.solver_file import State
        from .files.solver_protobuf import decode

        self._set_arrays({key: State(t, arrays) for key, t, arrays in decode(optimizer_proto.SerializeToString())})

    def _arrays(self) -> dict[str, State]:
        """The states as NumPy arrays, in what precision they are."""
        from .files.solver_file import State

        return {
            key: State(t, {name: array.get_data("r") for name, array in arrays.items()})
            for key, (t, arrays) in self._states().items()
        }

    def _set_arrays(self, states: Mapping[str, State]) -> None:
        """Sets states that were read from a file, with NumPy arrays."""
        arrays = {
            key: (state.t, {name: NdArray.from_numpy_array(array) for name, array in state.arrays.items()})
            for key, state in states.items()
        }
        self._set_states(arrays)


_FIXED = ("alpha", "learning_rate", "lr", "param_groups", "wd", "weight_decay")
"""Names that look like settings of a solver. Setting one of them would have no effect."""


def _instead(name: str, known: Collection[str]) -> str:
    """The end of an error about an argument of PyTorch's optimizers that has another form here; empty for others."""
    if name == "weight_decay":
        return (
            "; `wd` is PyTorch's weight_decay times the learning rate"
            if "wd" in known
            else "; call weight_decay(rate) of the solver between backward and update"
        )
    if name == "betas" and "beta1" in known:
        return "; did you mean 'beta1' and 'beta2'?"
    if name in ("momentum", "nesterov") and name not in known:
        return "; Momentum and Nesterov are solvers of their own"
    return f"; {_OTHERWISE[name]}" if name in _OTHERWISE else ""


_OTHERWISE = {
    "amsgrad": "AMSGRAD is a solver of its own",
    "capturable": "leave it out",
    "clipnorm": "call clip_grad_by_norm(norm) of the solver between backward and update",
    "clipvalue": "call clip_grad_by_norm(norm) of the solver between backward and update",
    "differentiable": "leave it out",
    "foreach": "leave it out",
    "fused": "leave it out",
    "global_clipnorm": "call clip_grad_by_global_norm(norm) of the solver between backward and update",
    "maximize": "negate the loss",
    "params": "set_parameters of the solver takes parameters",
}
"""Other arguments of PyTorch's and Keras's optimizers, and what to do instead."""


def _holds_parameters(x: Any) -> bool:
    """True for a module or a collection, which a user may take for the first argument as in PyTorch."""
    is_value = isinstance(x, str) or hasattr(x, "dtype")
    return not is_value and (hasattr(x, "named_parameters") or hasattr(x, "__iter__"))


def _variables(arrays: dict[str, NdArray]) -> dict[str, Variable]:
    """Returns variables that share the memory of the arrays."""
    variables = {}
    for name, array in arrays.items():
        variables[name] = Variable(array.shape)
        variables[name].data = array
    return variables


def _class(name: str, doc: str, args: list[tuple[str, str, Any]]) -> type[Solver]:
    """The solver class of a row of the registry. `args` lists name, type and default of each argument."""

    def init(self: Solver, *args: Any, **kwargs: Any) -> None:
        """Checks the names of arguments, and makes the core solver."""
        if args and _holds_parameters(args[0]):
            got = type(args[0]).__name__
            raise CallError(
                f"{name}: expected numbers as arguments, got {got}: set_parameters of the solver takes parameters, and "
                "add_group those with arguments of their own"
            )
        unknown = [key for key in kwargs if key not in signature.parameters]
        if unknown:
            nearest = _instead(unknown[0], signature.parameters) or question(unknown[0], signature.parameters)
            known = ", ".join(signature.parameters)
            raise CallError(f"{name}: expected ({known}), got an argument '{unknown[0]}'{nearest}")
        _core.Solver.__init__(self, name, *args, **kwargs)
        self._arguments = {**dict(zip(signature.parameters, args, strict=False)), **kwargs}

    parameters = [Parameter(a, Parameter.POSITIONAL_OR_KEYWORD, default=d, annotation=t) for a, t, d in args]
    signature = Signature(parameters)
    body = {"__doc__": doc, "__init__": init, "__module__": __name__, "__signature__": signature}
    return type(name, (Solver,), body)


_classes = {row[0]: _class(*row) for row in _core._solvers()}
globals().update(_classes)
__all__ = ["Solver", "SolverState", *_classes]


def __getattr__(name: str) -> type[Solver]:
    # The signature also lets type checkers accept the generated classes.
    absent(f"{__name__}.{name}", __all__)
