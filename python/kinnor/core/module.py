"""`Module`: a part of a network as an object, with its own parameters and submodules."""

from __future__ import annotations

import functools
import inspect
import os
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from .. import _core
from .._core import CallError, ParameterError, Variable
from ..display import Parameters, counted
from ..parameter import (
    ParameterInfo,
    get_parameters,
    is_learned,
    load_parameters,
    parameter_scope,
    save_parameters,
    set_parameter,
)
from ..parameter.tree import root
from .loaded import LoadedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Protocol, TypeVar

    from numpy.typing import NDArray
    from typing_extensions import ParamSpec, Self

    from ..files.parameter_file import PathOrFile
    from ..parameter.tree import Scope

    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class _HasCall(Protocol[_P, _R]):
        """A subclass of `Module`, whose method `call` has the types of a call."""

        def call(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            """The outputs of the module."""


__all__ = ["LoadedNames", "Module", "called", "listeners", "parameter_paths"]

_INTERNAL = frozenset(
    {"_submodules_in_lists", "_name", "_submodule_order", "_parameter_scope", "_parent", "_submodules"}
)
"""Attributes of the class itself, which hold no submodules or parameters of the user's."""


_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z](?![A-Z]))|(?<=[A-Z])(?=[A-Z][a-z])")
"""The places between words of the name of a class: `LeakyReLU` is `leaky_relu`."""

_WORDS_OF_NNABLA = re.compile(r"(?<!^)(?=[A-Z])")
"""The places in a class name before which NNabla's names have an underscore."""


_ELSEWHERE = {
    "bias": "b",
    "in_proj_weight": "q_weight",
    "kernel": "W",
    "running_mean": "mean",
    "running_var": "var",
    "weight": "W",
}
"""Names that PyTorch's modules have for the same attribute."""


_SET_ELSEWHERE = frozenset(["trainable", *_ELSEWHERE])
"""Attributes that programs of other libraries set. Here they would have no effect."""


class LoadedNames(NamedTuple):
    """The result of `Module.load_state_dict`: the names that were not loaded."""

    missing_keys: list[str]
    """Names of the module that the given values lack."""
    unexpected_keys: list[str]
    """Names of the given values that the module lacks."""


class _Called(threading.local):
    """A thread's stack of modules with a running method, innermost last."""

    def __init__(self) -> None:
        self.modules: list[Module] = []


_called = _Called()
"""The modules of this thread whose calls are running."""


listeners: list[Callable[[Module, Sequence[Any], Any], None]] = []
"""Callbacks run after each outermost method call of a module: `f(module, args, result)`."""


_modules: WeakValueDictionary[int, Module] = WeakValueDictionary()
"""All modules that are alive and have been asked for their parameters, by identity."""


def called() -> tuple[Module, ...]:
    """The modules whose methods this thread runs.

    Returns:
        The modules, outermost first.
    """
    return tuple(_called.modules)


def _scoped(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that runs in the module's parameter scope, and notifies `listeners`."""

    @functools.wraps(method)
    def run(self: Module, *args: Any, **kwargs: Any) -> Any:
        """Calls the method in the module's parameter scope."""
        _called.modules.append(self)
        try:
            with parameter_scope("", self.parameter_scope):
                made = method(self, *args, **kwargs)
        except TypeError as error:
            _explain_argument(type(self).__name__, method, error)
            raise
        finally:
            _called.modules.pop()
        if not _called.modules:
            for listener in listeners:
                listener(self, (*args, *kwargs.values()), made)
        return made

    return run


def _explain_argument(kind: str, method: Callable[..., Any], error: TypeError) -> None:
    """Raises CallError in place of Python's error about arguments that the method of a class lacks."""
    start = f"{method.__qualname__}() "
    told = str(error).removeprefix(start)
    is_unknown = told.startswith("got an unexpected keyword argument ")
    if told == str(error) or not (is_unknown or (" positional argument" in told and " given" in told)):
        return
    op = kind if method.__name__ in ("__init__", "call") else method.__qualname__
    parameters = list(inspect.signature(method).parameters.values())[1:]
    known = [each.name for each in parameters]
    if is_unknown:
        from .._suggest import advice
        from ..compat.foreign_names import LAYER_ARGUMENTS  # On a mistake only, not on import.

        name = told.split("'")[1]
        got = f"an argument {name!r}{advice(name, known, LAYER_ARGUMENTS)}"
    else:
        named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        got = "more arguments without a name" + (f"; {', '.join(named)} need their names" if named else "")
    raise CallError(f"{op}: expected ({', '.join(known)}), got {got}") from None


class Module:
    """A part of a network. Parameters registered in its methods belong to it.

    Subclasses define `call`, which `module(...)` calls. Modules set as attributes are submodules. Paths of their
    parameters start with `@` and the name of the submodule. Parameters of a model that `kinnor.load` or
    `kinnor.onnx.load` returned belong to the module too if the model is an attribute.

    Attributes:
        training: True in training mode. Setting it also sets it on all submodules.

        >>> import kinnor as nn, kinnor.functions as F, kinnor.parametric_functions as PF
        >>> class Block(nn.Module):
        ...     def __init__(self, n):
        ...         self.n = n
        ...     def call(self, x):
        ...         return F.relu(PF.affine(x, self.n))
        >>> class Network(nn.Module):
        ...     def __init__(self):
        ...         self.first = Block(4)
        ...     def call(self, x):
        ...         return PF.affine(self.first(x), 2)
        >>> network = Network()
        >>> network(nn.Variable((1, 3))).shape
        (1, 2)
        >>> list(network.get_parameters())
        ['@first/affine/W', '@first/affine/b', 'affine/W', 'affine/b']
    """

    def __init_subclass__(cls, scoped: bool = True, **kwargs: Any) -> None:
        """Make parametric functions that the methods of the class call register their parameters in the module.

        Args:
            scoped: False for a class whose own methods call no parametric functions.
            **kwargs: For other base classes.
        """
        super().__init_subclass__(**kwargs)
        for name, member in list(vars(cls).items()) if scoped else ():
            if inspect.isfunction(member):
                setattr(cls, name, _scoped(member))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores an unpickled module, and registers it as a live one."""
        self.__dict__.update(state)
        _modules[id(self)] = self

    def __repr__(self) -> str:
        parameters = self._module_parameters(True, False, set())
        size = counted(sum(v.size for v in parameters.values()), "element")
        return "\n".join([*_lines(self, "", set()), f"{size} in {counted(len(parameters), 'parameter')}"])

    def extra_repr(self) -> str:
        """The arguments that `repr` shows after the name of the class; subclasses may define it.

        Returns:
            Text without parentheses; empty by default.
        """
        return ""

    @property
    def training(self) -> bool:
        """True in training mode."""
        return bool(self.__dict__.setdefault("training", True))

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["training"] = mode
        for module in self.submodules.values():
            module.training = mode

    @property
    def parameter_scope(self) -> Scope:
        """The module's own parameters: a dict from names to variables and scopes."""
        scope: Scope | None = self.__dict__.get("_parameter_scope")
        if scope is None:
            scope = self.__dict__["_parameter_scope"] = OrderedDict()
            _modules[id(self)] = self
        return scope

    @property
    def submodules(self) -> dict[str, Module]:
        """The direct submodules by name."""
        found: dict[str, Module] = self.__dict__.setdefault("_submodules", OrderedDict())
        listed = {} if _core.is_nnabla() else dict(self._listed_modules())
        before: dict[str, Module] = self.__dict__.get("_submodules_in_lists", {})
        if listed != before:
            for name in before:
                found.pop(name, None)
            found.update(listed)
            self.__dict__["_submodules_in_lists"] = listed
            order = {name: place for place, name in enumerate(self.__dict__.get("_submodule_order", ()))}
            rows = sorted(found.items(), key=lambda row: order.get(row[0].partition(".")[0], len(order)))
            found.clear()
            found.update(rows)
        return found

    def _listed_modules(self) -> Iterator[tuple[str, Module]]:
        """The modules in lists, tuples and dicts among the attributes, by name."""
        for name, value in list(vars(self).items()):
            if name not in _INTERNAL and isinstance(value, (list, tuple, dict)):
                for key, module in _nested(name, value, Module):
                    if module.parent is None:
                        module.__dict__.update(_name=key, _parent=self)
                    yield key, module

    @property
    def name(self) -> str:
        """The attribute's name in the parent module; by default the class name in snake case."""
        given: str | None = self.__dict__.get("_name")
        words = _WORDS_OF_NNABLA if _core.is_nnabla() else _WORDS
        return given or words.sub("_", type(self).__name__).lower()

    @property
    def parent(self) -> Module | None:
        """The module that has this one as a submodule, or None."""
        return self.__dict__.get("_parent")

    def is_root(self) -> bool:
        """True if the module is not a submodule.

        Returns:
            True or False.
        """
        return self.parent is None

    def get_path_name(self) -> str:
        """The path of the module from the root module.

        Returns:
            Names with `@` in front, separated by slashes.
        """
        around = "" if self.parent is None else f"{self.parent.get_path_name()}/"
        return f"{around}@{self.name}"

    # --- Submodules

    def children(self) -> Iterator[Module]:
        """The modules directly in it, each once.

        Yields:
            Modules in the order in which they were set.
        """
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly in it with their names, each once.

        Yields:
            Name and module.
        """
        seen: set[int] = set()
        for name, module in self.submodules.items():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self) -> Iterator[Module]:
        """The module and all modules below it, each once.

        Yields:
            Modules, each before those in it.
        """
        for _, module in self.named_modules():
            yield module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """The module and all modules below it with their names, each once.

        Args:
            memo: Modules to leave out, to which the ones that are found are added.
            prefix: The name of this module; empty by default.

        Yields:
            Name and module. Names of nested modules are joined by dots.

        Examples:
            >>> import kinnor as nn, kinnor.layers as L
            >>> network = nn.Sequential(("first", L.Linear(3, 4)), ("last", L.Linear(4, 2)))
            >>> [name for name, module in network.named_modules()]
            ['', 'first', 'last']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        memo.add(self)
        yield prefix, self
        for name, module in list(self.submodules.items()):
            yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call a function with each module below it, and then with the module itself.

        Args:
            fn: The function. Its result is ignored.

        Returns:
            The module.
        """
        for module in reversed(list(self.modules())):
            fn(module)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode in the module and all modules below it.

        Dropout and batch normalization of `kinnor.layers` follow it in graphs that are built afterwards. A static graph
        keeps the mode in which it was built: build one graph for training and another one for evaluation.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            The module.
        """
        self.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode, as `train(False)`.

        Returns:
            The module.
        """
        return self.train(False)

    # --- Parameters

    def get_scope_name(self) -> str:
        """The path to the first submodule, its first submodule, and so on.

        Returns:
            Names with `@` in front, separated by slashes.
        """
        for name, module in self.submodules.items():
            return f"@{name}/{module.get_scope_name()}".strip("/")
        return ""

    def get_parameters(
        self, recursive: bool = True, grad_only: bool = False, memo: set[Variable] | None = None
    ) -> Parameters:
        """The parameters of the module and its submodules, each once, submodules first.

        Args:
            recursive: Whether to include submodules.
            grad_only: Whether to leave out parameters that need no gradient.
            memo: Variables to leave out. Returned variables are added to it.

        Returns:
            Variables by path.
        """
        return self._module_parameters(recursive, grad_only, set() if memo is None else memo)

    def _module_parameters(self, recursive: bool, grad_only: bool, memo: set[Variable]) -> Parameters:
        """Returns the parameters of `get_parameters`, which derived classes may define with other arguments."""
        found = Parameters()
        for name, module in self.submodules.items() if recursive else ():
            own = module._module_parameters(recursive, grad_only, memo)
            found.update({f"@{name}/{key}": variable for key, variable in own.items()})
        for key, variable in self._own_parameters():
            if variable not in memo and (variable.need_grad or not grad_only):
                memo.add(variable)
                found[key] = variable
        return found

    def _own_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Its own parameters: those in its scope, then those among its attributes."""
        yield from get_parameters(self.parameter_scope, grad_only=False).items()
        if _core.is_nnabla():
            return
        for name, value in list(vars(self).items()):
            if name not in _INTERNAL and isinstance(value, (Variable, list, tuple, dict)):
                for key, variable in _nested(name, value, Variable):
                    if variable.parent is None and is_learned(variable):
                        yield key, variable
        for name, model in self._held_models():
            for key, variable in model.get_parameters().items():
                yield f"{name}/{key}", variable

    def _held_models(self) -> Iterator[tuple[str, Any]]:
        """The models of files among the attributes, by name: `Model` of `kinnor.load` and of `kinnor.onnx.load`."""
        for name, value in list(vars(self).items()):
            if name not in _INTERNAL and isinstance(value, (LoadedNetwork, list, tuple, dict)):
                yield from _nested(name, value, LoadedNetwork)

    def parameters(self) -> Iterator[Variable]:
        """The learned parameters of the module and of submodules, each once, frozen parameters included.

        Running statistics are left out; `get_parameters` and `state_dict` have them.

        Yields:
            Variables in the order of `get_parameters`.
        """
        for _, variable in self.named_parameters():
            yield variable

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """The `parameters` with their paths.

        Yields:
            Path, as of `get_parameters`, and variable.
        """
        for name, variable in self.state_dict().items():
            if is_learned(variable):
                yield name, variable

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze or unfreeze: set `need_grad` of all `parameters` of the module.

        It affects graphs that are built afterwards.

        Args:
            requires_grad: False to freeze, True to unfreeze.

        Returns:
            The module.
        """
        for variable in list(self.parameters()):
            info = _learned(variable).info
            variable.info, variable.need_grad = info._replace(is_frozen=not requires_grad), bool(requires_grad)
        return self

    def state_dict(self) -> Parameters:
        """All parameters and running statistics of the module and of submodules, by path.

        These are the variables themselves: they change as the training goes on. `nn.save_parameters` saves them.

        Returns:
            Variables by path, as of `get_parameters(grad_only=False)`.

        Examples:
            >>> import kinnor.layers as L
            >>> list(L.Linear(3, 2).state_dict())
            ['W', 'b']
        """
        return self._module_parameters(True, False, set())

    def load_state_dict(
        self,
        state_dict: Mapping[str, Variable | NDArray[Any]],
        strict: bool = True,
        *,
        names: Callable[[str], str] | None = None,
    ) -> LoadedNames:
        """Copy values into the parameters and running statistics.

        Modules that call parametric functions have their parameters after the first call only.

        Args:
            state_dict: Variables or arrays by path, as of `state_dict`.
            strict: Whether a name that is missing or unexpected is an error.
            names: Returns the name in `state_dict` for a path of the module; by default the path itself. Several paths
                may have one name.

        Returns:
            The missing and the unexpected names, as in `state_dict`.

        Raises:
            ParameterError: If a shape differs or, with `strict`, if names are missing or unexpected. Nothing is
                changed then.

        Examples:
            >>> import kinnor.layers as L
            >>> one, other = L.Linear(3, 2), L.Linear(3, 2)
            >>> other.load_state_dict(one.state_dict())
            LoadedNames(missing_keys=[], unexpected_keys=[])
            >>> bool((other.W.d == one.W.d).all())
            True
            >>> weights = {"weight": one.W, "bias": one.b}
            >>> other.load_state_dict(weights, names={"W": "weight", "b": "bias"}.__getitem__)
            LoadedNames(missing_keys=[], unexpected_keys=[])
        """
        op = "Module.load_state_dict"
        if not hasattr(state_dict, "items"):
            is_path = isinstance(state_dict, (str, os.PathLike)) or hasattr(state_dict, "matched")
            hint = "; load_parameters(path) of the module reads a file" if is_path else ""
            raise CallError(f"{op}: expected Variables or arrays by path, got {type(state_dict).__name__}{hint}")
        own = self.state_dict()
        named = {path: path if names is None else names(path) for path in own}
        known = set(named.values())
        missing = [name for name in dict.fromkeys(named.values()) if name not in state_dict]
        unexpected = [name for name in state_dict if name not in known]
        values = {name: _values(op, name, state_dict[name]) for name in state_dict if name in known}
        pairs = [(name, own[path], values[name]) for path, name in named.items() if name in values]
        wrong = [
            f"{name!r} of shape {variable.shape}, got {array.shape}"
            for name, variable, array in pairs
            if array.shape != variable.shape
        ]
        wrong += [f"missing names {missing}"] * bool(strict and missing)
        wrong += [f"unexpected names {unexpected}"] * bool(strict and unexpected)
        if wrong:
            text = "; ".join(wrong) if own else f"a module that has parameters, got {type(self).__name__} without any"
            hint = "" if own else ": call it once, or build it of layers, before values are loaded"
            raise ParameterError(f"{op}: expected the parameters of {type(self).__name__}: {text}{hint}")
        _core.assign_together([(variable.data, array) for _, variable, array in pairs])
        return LoadedNames(missing, unexpected)

    def set_parameter(self, key: str, param: Variable, raise_if_missing: bool = False) -> None:
        """Register a variable as a parameter.

        Args:
            key: Path, as in `get_parameters`.
            param: The variable.
            raise_if_missing: Whether a missing submodule is an error.

        Raises:
            ParameterError: If the path ends with the name of a submodule, or if a submodule is missing.
        """
        if not key.startswith("@"):
            with parameter_scope("", self.parameter_scope):
                set_parameter(key, param)
            return
        name, _, rest = key[1:].partition("/")
        if not rest:
            raise ParameterError(f"Module.set_parameter: expected a path within the module {name!r}, got {key!r}")
        if name in self.submodules:
            self.submodules[name].set_parameter(rest, param, raise_if_missing)
        elif raise_if_missing:
            raise ParameterError(
                f"Module.set_parameter: expected a submodule of {type(self).__name__}, got the name {name!r}"
            )

    def set_parameters(self, params: Mapping[str, Variable], raise_if_missing: bool = False) -> None:
        """Register variables as parameters.

        Args:
            params: Variables by path, as in `get_parameters`.
            raise_if_missing: Whether a missing submodule is an error.
        """
        for key, param in params.items():
            self.set_parameter(key, param, raise_if_missing)

    def update_parameter(self) -> None:
        """Register the module's parameters again."""
        self.set_parameters(self.get_parameters())

    def load_parameters(self, path: PathOrFile, extension: str | None = ".h5", raise_if_missing: bool = True) -> None:
        """Load parameters from a file of `save_parameters`. Existing parameters get the values, others are registered.

        Args:
            path: Path, or a file open for reading bytes.
            extension: The format, if `path` has no extension.
            raise_if_missing: Whether a missing submodule is an error.

        Raises:
            ParameterError: If a shape differs, or a submodule is missing.
        """
        scope: Scope = OrderedDict()
        with parameter_scope("", scope):
            load_parameters(path, extension=_needed(path, extension))
        loaded, own = get_parameters(scope, grad_only=False), self.state_dict()
        for key, variable in loaded.items():
            if key in own and own[key].shape != variable.shape:
                raise ParameterError(
                    f"Module.load_parameters: expected shape {own[key].shape} for the existing parameter {key!r}, "
                    f"got {variable.shape}"
                )
        self.set_parameters({key: v for key, v in loaded.items() if key not in own}, raise_if_missing)
        for key, variable in loaded.items():
            if key in own:  # written in place, as graphs and attributes refer to the variable
                own[key].d, own[key].need_grad = variable.d, variable.need_grad

    def save_parameters(self, path: PathOrFile, extension: str | None = ".h5") -> None:
        """Save the parameters of the module and its submodules.

        Args:
            path: Path, or a file open for writing bytes.
            extension: The format, if `path` has no extension.
        """
        save_parameters(path, self.state_dict(), _needed(path, extension))

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for parameter in self.state_dict().values():
            parameter.grad.zero()

    def __len__(self) -> int:
        return len(self.submodules)

    def __bool__(self) -> bool:
        """Returns True, also for containers without modules."""
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        """Stores a value. A module becomes a submodule instead of an attribute in `__dict__`."""
        if name in _SET_ELSEWHERE and type(self).__module__.startswith("kinnor."):
            self._refuse_to_set(name)
        found = self.__dict__.setdefault("_submodules", OrderedDict())
        if isinstance(value, (Module, list, tuple, dict)):
            order = self.__dict__.setdefault("_submodule_order", {})
            order.setdefault(name)
        if isinstance(value, Module):
            self.__dict__.pop(name, None)
            found[name] = value
            value.__dict__.update(_name=name, _parent=self)
            return
        found.pop(name, None)
        if isinstance(value, Variable):
            self._set_parameter_variable(name, value)
        if name == "training":
            super().__setattr__(name, value)
        else:
            self.__dict__[name] = value

    def _refuse_to_set(self, name: str) -> None:
        """Raises AttributeError if a layer or container of Kinnor would ignore an attribute of other libraries."""
        other = self._own_name(name)
        if name != "trainable" and (other is None or name in vars(self) or hasattr(type(self), name)):
            return
        hint = f"did you mean {other!r}?" if other else "write model.requires_grad_(False) to freeze it"
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r} to set; {hint}")

    def _set_parameter_variable(self, name: str, value: Variable) -> None:
        """Keep the parameters up to date with a variable that becomes an attribute."""
        if value.parent is not None or _core.is_nnabla():
            return
        if value.need_grad:
            _learned(value)  # It stays a parameter when it is frozen.
        registered = self.parameter_scope.get(name)
        if isinstance(registered, Variable) and registered != value:
            self.parameter_scope[name] = value

    def __delattr__(self, name: str) -> None:
        """Removes a submodule or another attribute."""
        if self.__dict__.get("_submodules", {}).pop(name, None) is None:
            super().__delattr__(name)

    def __getattr__(self, name: str) -> Any:
        """Returns a submodule. Raises AttributeError with a hint if there is none of this name."""
        # `submodules` would be slower, and modules in lists are no attributes.
        found = self.__dict__.get("_submodules", {})
        if name in found:
            return found[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{self._missing_hint(name)}")

    def _missing_hint(self, name: str) -> str:
        """The end of an error about an attribute that PyTorch's modules have and this one has not."""
        from ..compat.foreign_names import MODULE  # On a mistake only, not on import.

        other = self._own_name(name)
        if other is not None:
            return f"; did you mean {other!r}?"
        is_known = name in MODULE and (name not in _ELSEWHERE or hasattr(type(self), "__getitem__"))
        return f"; write {MODULE[name]}" if is_known else ""

    def _own_name(self, name: str) -> str | None:
        """The attribute of this module that PyTorch's modules have by another name."""
        other = _ELSEWHERE.get(name, "")
        return other if other in vars(self) or hasattr(type(self), other) else None

    # Type checkers know this name, and take the types of `call`. Editors infer them from the body in the other branch.
    TYPE_CHECKING = False
    if TYPE_CHECKING:

        def __call__(self: _HasCall[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
            """Calls `call`."""
            return self.call(*args, **kwargs)

    else:

        def __call__(self, *args, **kwargs):
            """Calls `call`."""
            return self.call(*args, **kwargs)

    del TYPE_CHECKING

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of the module. Subclasses define it.

        Args:
            *args: The inputs.
            **kwargs: Further inputs.

        Raises:
            NotImplementedError: If a subclass does not define it.
        """
        forward = getattr(type(self), "forward", None)
        if forward is not None:
            return forward(self, *args, **kwargs)
        raise NotImplementedError(f"{type(self).__name__}: expected a method call(...), got none")


def parameter_paths() -> dict[int, str]:
    """The paths of all parameters of the process, by the hashes of their arrays.

    Unlinked copies of a parameter share its array. Paths in modules start with the class of the outermost module.
    """
    paths: dict[int, str] = {}
    for module in list(_modules.values()):
        if module.parent is None:
            for path, variable in module._module_parameters(True, False, set()).items():
                paths[hash(variable.data)] = f"{type(module).__name__}/{path.replace('@', '')}"
    with parameter_scope("", root):
        for path, variable in get_parameters(grad_only=False).items():
            paths.setdefault(hash(variable.data), path)
    return paths


def checked(op: str, module: Any) -> Module:
    """The argument, unchanged. Raises CallError unless it is a Module."""
    if not isinstance(module, Module):
        hint, got = "", type(module).__name__
        if isinstance(module, type):
            hint, got = f": {module.__name__}() makes a module of the class", module.__name__
        elif callable(module):
            hint = ": kinnor.layers.Activation makes a module of a function"
        elif hasattr(module, "items"):
            hint = f": write {op}(*modules.items())" if op == "Sequential" else ""
        elif hasattr(module, "__iter__"):
            hint = f": write {op}(*modules)" if op == "Sequential" else ""
        raise CallError(f"{op}: expected Modules, got {got}{hint}")
    return module


def _nested(name: str, value: Any, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The objects of a kind in nested lists, tuples and dicts, with names joined by dots.

    Raises:
        ParameterError: If the key of one has a slash, which separates the names of a path.
    """
    if isinstance(value, kind):
        if "/" in name:
            raise ParameterError(f"Module: expected keys of submodules and parameters without '/', got {name!r}")
        yield name, value
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            if isinstance(each, (kind, list, tuple, dict)):
                yield from _nested(f"{name}.{place}", each, kind)
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, (kind, list, tuple, dict)):
                yield from _nested(f"{name}.{key}", each, kind)


def _learned(variable: Variable) -> Variable:
    """The variable, marked as a parameter that stays one when it is frozen."""
    if not isinstance(variable.info, ParameterInfo):
        variable.info = ParameterInfo(None)
    return variable


def _values(op: str, name: str, given: Any) -> NDArray[Any]:
    """The values of a variable or an array."""
    if isinstance(given, Variable):
        values: NDArray[Any] = given.data.get_data("r")
        return values
    try:
        return np.asarray(given, dtype=None if isinstance(given, np.ndarray) else np.float32)
    except (TypeError, ValueError):
        raise CallError(f"{op}: expected a Variable or an array for {name!r}, got {given!r}") from None


def _lines(module: Module, name: str, seen: set[int]) -> list[str]:
    """The lines of `repr`: the class, shapes of own parameters, then submodules with indentation."""
    head = f"({name}): " if name else ""
    kind = type(module).__name__
    if id(module) in seen:
        return [f"{head}{kind}, as above"]
    seen.add(id(module))
    own = module._module_parameters(False, False, set())
    shapes = ", ".join(f"{key} {variable.shape}" for key, variable in own.items())
    arguments = module.extra_repr()
    first = f"{head}{kind}({arguments})" + (f": {shapes}" if shapes else "")
    inner = [f"  {line}" for key, each in module.submodules.items() for line in _lines(each, key, seen)]
    return [first, *inner]


def _needed(path: PathOrFile, extension: str | None) -> str | None:
    """The extension to pass on: None if the path has its own."""
    own = isinstance(path, (str, os.PathLike)) and Path(path).suffix
    return None if own else extension
