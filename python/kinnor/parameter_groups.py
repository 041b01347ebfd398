"""Solvers with groups of parameters: each group has a rate and other arguments of its own.

A group is a solver of the same rule. The solver with groups hands each call on to them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import CallError, ParameterError, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from ._core import NdArray

    Hook: TypeAlias = "Callable[[], object] | None"
    States: TypeAlias = "dict[str, tuple[int, dict[str, NdArray]]]"

__all__ = ["Groups", "check_group", "named"]


GROUP_HINT = "; a group is a call: solver.add_group(parameters, alpha=1e-4)"
"""The end of an error about a dictionary such as PyTorch's optimizers take."""


def named(op: str, parameters: Any) -> Mapping[str, Variable]:
    """The parameters of a solver by name.

    Args:
        op: The call, for errors.
        parameters: Variables by name, a module, variables, or pairs of a name and a variable.

    Returns:
        A mapping as it is. Otherwise the parameters that need a gradient; variables without names get the names "0",
        "1" and so on.

    Raises:
        CallError: If it is something else.
        ParameterError: If a module has no parameters.
    """
    if hasattr(parameters, "items"):
        found: Mapping[str, Variable] = parameters
        return found
    if hasattr(parameters, "named_parameters"):
        of_module = {name: v for name, v in parameters.named_parameters() if v.need_grad}
        if not of_module:
            kind = type(parameters).__name__
            if next(iter(parameters.named_parameters()), None) is not None:
                hint = "call requires_grad_() of the part to train"
                raise ParameterError(f"{op}: expected parameters to train, got {kind} with all of them frozen; {hint}")
            expected = "a module that has parameters, which a call of the module or layers make"
            raise ParameterError(f"{op}: expected {expected}, got {kind} without any")
        return of_module
    if isinstance(parameters, (str, Variable)) or not hasattr(parameters, "__iter__"):
        raise CallError(f"{op}: expected Variables by name, a module or Variables, got {type(parameters).__name__}")
    given: dict[str, Variable] = {}
    for place, each in enumerate(parameters):
        name, variable = each if isinstance(each, tuple) and len(each) == 2 else (str(place), each)
        if not isinstance(variable, Variable):
            hint = GROUP_HINT if isinstance(variable, dict) else ""
            raise CallError(f"{op}: expected Variables, got {type(variable).__name__}{hint}")
        if variable.need_grad:
            given[name] = variable
    return given


def check_group(solver: _core.Solver, parameters: Any) -> tuple[dict[str, Variable], list[str]]:
    """The parameters of a new group by the names that they have in the solver, and the names that leave their group.

    Raises:
        ParameterError: If a new parameter has the name of another one.
    """
    op = f"{solver.name}.add_group"
    known = solver.get_parameters()
    names = {variable: name for name, variable in known.items()}
    found: dict[str, Variable] = {}
    for name, variable in named(op, parameters).items():
        if not isinstance(variable, Variable):
            hint = GROUP_HINT if name == "params" else ""
            raise CallError(f"{op}: expected Variables, got {type(variable).__name__} for {name!r}{hint}")
        key = names.get(variable, name)
        if variable not in names and key in known:
            raise ParameterError(
                f"{op}: expected a new name for a parameter that the solver does not have, got {key!r}; layers of one "
                "module have names of their own, and a dictionary gives names: {'body/W': W}"
            )
        found[key] = variable
    if not found:
        raise ParameterError(f"{op}: expected parameters that need a gradient, got none")
    return found, [key for key in found if key in known]


class Groups(_core.Solver):
    """The methods of a solver that has groups; `Solver.add_group` puts this class before the class of the solver."""

    _groups: list[_core.Solver]
    """The solvers of the groups, in the order of `add_group`."""
    _decays: list[float | None]
    """The rate of weight decay of each group; None for the rate that `weight_decay` is called with."""
    _ratios: list[float | None]
    """The rate of each group relative to the solver's; None for a rate that stays."""

    def _for_gradients(self) -> _core.Solver:
        """A solver with all parameters, for what concerns gradients alone."""
        solver = _core.Solver("Sgd")
        solver.set_parameters(self.get_parameters())
        return solver

    def set_parameters(self, param_dict: Any, reset: bool = True, retain_state: bool = False) -> None:
        """Sets the parameters. `reset` removes the groups. Otherwise parameters stay in their groups."""
        found = dict(named(f"{self.name}.set_parameters", param_dict))
        if reset:
            self._groups, self._decays, self._ratios = [], [], []
        for group in self._groups:
            own = {key: found.pop(key) for key in group.get_parameters() if key in found}
            if own:
                group.set_parameters(own, False, retain_state)
        super().set_parameters(found, reset, retain_state)

    def remove_parameters(self, keys: Iterable[str]) -> None:
        """Removes parameters from the solver and its groups."""
        left = [keys] if isinstance(keys, str) else list(keys)
        parts = []
        for group in self._groups:
            own = group.get_parameters()
            parts.append([key for key in left if key in own])
            left = [key for key in left if key not in own]
        super().remove_parameters(left)
        for group, part in zip(self._groups, parts, strict=True):
            group.remove_parameters(part)

    def clear_parameters(self) -> None:
        """Removes all parameters and groups."""
        super().clear_parameters()
        self._groups, self._decays, self._ratios = [], [], []

    def get_parameters(self) -> dict[str, Variable]:
        """Returns all parameters by name, with the parameters of groups last."""
        found = super().get_parameters()
        for group in self._groups:
            found.update(group.get_parameters())
        return found

    def _states(self) -> States:
        """Returns the states of the solver's own parameters and of all its groups."""
        found = super()._states()
        for group in self._groups:
            found.update(group._states())
        return found

    def _set_states(self, states: States) -> None:
        """Sets the states of own parameters and groups. If one cannot be set, restores all of them."""
        left = dict(states)
        parts = []
        for group in self._groups:
            parts.append({key: left.pop(key) for key in group.get_parameters() if key in left})
        before = self._states()
        kept = {
            key: (t, {name: _copied(array) for name, array in arrays.items()}) for key, (t, arrays) in before.items()
        }
        try:
            super()._set_states(left)
            for group, part in zip(self._groups, parts, strict=True):
                group._set_states(part)
        except BaseException:
            own = super().get_parameters()
            super()._set_states({key: state for key, state in kept.items() if key in own})
            for group in self._groups:
                group._set_states({key: kept[key] for key in group.get_parameters() if key in kept})
            raise

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the learning rate. Rates of groups keep their ratio to it."""
        super().set_learning_rate(learning_rate)
        for group, ratio in zip(self._groups, self._ratios, strict=True):
            if ratio is not None:
                group.set_learning_rate(learning_rate * ratio)

    def zero_grad(self) -> None:
        """Clears the gradients of all parameters."""
        super().zero_grad()
        for group in self._groups:
            group.zero_grad()

    def _check(self) -> None:
        """Raises what an update of a group would raise, before parameters of other groups change."""
        for group in self._groups:
            with suppress(_Checked):  # Hooks are called after all parameters have been checked.
                group.update(_stop)

    def update(self, update_pre_hook: Hook = None, update_post_hook: Hook = None) -> None:
        """Updates all parameters, or none if one cannot be. Groups with a weight decay of their own apply it."""
        self._check()
        if super().get_parameters() or not self._groups:
            super().update(update_pre_hook, update_post_hook)
        for group, decay in zip(self._groups, self._decays, strict=True):
            if decay:
                group.weight_decay(decay)
            group.update(update_pre_hook, update_post_hook)

    def weight_decay(self, decay_rate: float, pre_hook: Hook = None, post_hook: Hook = None) -> None:
        """Adds the weight decay to the gradients, except in groups with a weight decay of their own."""
        self._check()
        super().weight_decay(decay_rate, pre_hook, post_hook)
        for group, decay in zip(self._groups, self._decays, strict=True):
            if decay is None:
                group.weight_decay(decay_rate, pre_hook, post_hook)

    def clip_grad_by_norm(self, clip_norm: float, pre_hook: Hook = None, post_hook: Hook = None) -> None:
        """Clips the gradient of each parameter by its norm."""
        self._for_gradients().clip_grad_by_norm(clip_norm, pre_hook, post_hook)

    def clip_grad_by_global_norm(self, max_norm: float) -> float:
        """Clips all gradients by one norm for all groups, and returns that norm."""
        return self._for_gradients().clip_grad_by_global_norm(max_norm)

    def scale_grad(self, scale: float, pre_hook: Hook = None, post_hook: Hook = None) -> None:
        """Multiplies all gradients."""
        self._for_gradients().scale_grad(scale, pre_hook, post_hook)

    def check_inf_grad(self, pre_hook: Hook = None, post_hook: Hook = None) -> bool:
        """True if a gradient holds an infinity."""
        return self._for_gradients().check_inf_grad(pre_hook, post_hook)

    def check_nan_grad(self, pre_hook: Hook = None, post_hook: Hook = None) -> bool:
        """True if a gradient holds a NaN."""
        return self._for_gradients().check_nan_grad(pre_hook, post_hook)

    def check_inf_or_nan_grad(self, pre_hook: Hook = None, post_hook: Hook = None) -> bool:
        """True if a gradient holds an infinity or a NaN."""
        return self._for_gradients().check_inf_or_nan_grad(pre_hook, post_hook)


class _Checked(Exception):
    """Ends an update that was to be checked only."""


def _stop() -> None:
    """Raises `_Checked`."""
    raise _Checked


def _copied(array: NdArray) -> NdArray:
    """Returns a copy of an array with memory of its own."""
    return type(array).from_numpy_array(array.get_data("r").copy())
