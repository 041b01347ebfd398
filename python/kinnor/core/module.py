"""`Module`: a part of a network as an object, with its own parameters and submodules."""

from __future__ import annotations

import functools
import inspect
import os
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import CallError, ParameterError
from ..display import Parameters
from ..parameter import get_parameters, load_parameters, parameter_scope, save_parameters, set_parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._core import Variable
    from ..files.parameter_file import PathOrFile
    from ..parameter.tree import Scope

__all__ = ["Module", "called", "listeners"]

_RECURSIVE = ("training",)
"""Attributes that are also set on all submodules."""


class _Called(threading.local):
    """A thread's stack of modules with a running method, innermost last."""

    def __init__(self) -> None:
        self.modules: list[Module] = []


_called = _Called()


listeners: list[Callable[[Module, Sequence[Any], Any], None]] = []
"""Callbacks run after each outermost method call of a module: `f(module, args, result)`."""


def called() -> tuple[Module, ...]:
    """The modules whose methods are running on this thread.

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
        finally:
            _called.modules.pop()
        if not _called.modules:
            for listener in listeners:
                listener(self, (*args, *kwargs.values()), made)
        return made

    return run


class Module:
    """A part of a network. Parameters registered in its methods belong to it.

    Subclasses define `call`, which `module(...)` calls. Modules set as attributes are submodules. Paths of their
    parameters start with `@` and the name of the submodule.

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member):
                setattr(cls, name, _scoped(member))

    def __repr__(self) -> str:
        return type(self).__name__

    @property
    def training(self) -> bool:
        """True in training mode."""
        return bool(self.__dict__.setdefault("training", True))

    @property
    def parameter_scope(self) -> Scope:
        """The module's own parameters: a dict from names to variables and scopes."""
        scope: Scope = self.__dict__.setdefault("_parameter_scope", OrderedDict())
        return scope

    @property
    def submodules(self) -> dict[str, Module]:
        """The direct submodules by name."""
        found: dict[str, Module] = self.__dict__.setdefault("_submodules", OrderedDict())
        return found

    @property
    def name(self) -> str:
        """The attribute's name in the parent module; by default the class name in snake case."""
        given: str | None = self.__dict__.get("_name")
        return given or re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

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
        memo = set() if memo is None else memo
        found = Parameters()
        for name, module in self.submodules.items() if recursive else ():
            own = module.get_parameters(recursive, grad_only, memo)
            found.update({f"@{name}/{key}": variable for key, variable in own.items()})
        for key, variable in get_parameters(self.parameter_scope, grad_only=grad_only).items():
            if variable not in memo:
                memo.add(variable)
                found[key] = variable
        return found

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
            raise ParameterError(f"Module.set_parameter: expected a submodule of {self!r}, got the name {name!r}")

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
        loaded, own = get_parameters(scope, grad_only=False), self.get_parameters()
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
        save_parameters(path, self.get_parameters(grad_only=False), _needed(path, extension))

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        for parameter in self.get_parameters().values():
            parameter.grad.zero()

    def __len__(self) -> int:
        return len(self.submodules)

    def __bool__(self) -> bool:
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self.submodules[name] = value
            value.__dict__.update(_name=name, _parent=self)
            return
        self.__dict__[name] = value
        for module in self.submodules.values() if name in _RECURSIVE else ():
            setattr(module, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in self.submodules:
            return self.submodules[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `call`."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of the module. Subclasses define it.

        Args:
            *args: The inputs.
            **kwargs: Further inputs.

        Raises:
            NotImplementedError: If a subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method call(...), got none")


def checked(op: str, module: Any) -> Module:
    """The argument, unchanged. Raises CallError unless it is a Module."""
    if not isinstance(module, Module):
        raise CallError(f"{op}: expected Modules, got {type(module).__name__}")
    return module


def _needed(path: PathOrFile, extension: str | None) -> str | None:
    """The extension to pass on: None if the path has its own."""
    own = isinstance(path, (str, os.PathLike)) and Path(path).suffix
    return None if own else extension
