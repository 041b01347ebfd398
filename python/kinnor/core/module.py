"""Modules: objects that have parameters of their own, and other modules.

Knows parameters and their paths; knows no functions.
"""

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
"""Attributes that a module hands on to those in it."""


class _Called(threading.local):
    """The modules that one thread is in a method of, the innermost last."""

    def __init__(self) -> None:
        self.modules: list[Module] = []


_called = _Called()


listeners: list[Callable[[Module, Sequence[Any], Any], None]] = []
"""Who is told of a method of a module that no other called, when it is done: module, arguments, and what it gave."""


def called() -> tuple[Module, ...]:
    """The modules that this thread is in a method of.

    Returns:
        The outermost first.
    """
    return tuple(_called.modules)


def _scoped(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose parameters are the module's own."""

    @functools.wraps(method)
    def run(self: Module, *args: Any, **kwargs: Any) -> Any:
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
    """A part of a network: what it registers as parameters, in any of its methods, is its own.

    Subclasses define `call`, which `module(...)` calls. Modules that are set as attributes are its submodules; their
    parameters are listed with an `@` before the name of the module.

    Attributes:
        training: Whether it is used to train; to set it sets it in all submodules.

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
        """Whether it is used to train."""
        return bool(self.__dict__.setdefault("training", True))

    @property
    def parameter_scope(self) -> Scope:
        """Its own parameters: names to variables and scopes."""
        scope: Scope = self.__dict__.setdefault("_parameter_scope", OrderedDict())
        return scope

    @property
    def submodules(self) -> dict[str, Module]:
        """The modules in it, by name."""
        found: dict[str, Module] = self.__dict__.setdefault("_submodules", OrderedDict())
        return found

    @property
    def name(self) -> str:
        """The name that it has in the module around it; by default that of its class, in small letters."""
        given: str | None = self.__dict__.get("_name")
        return given or re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def parent(self) -> Module | None:
        """The module around it."""
        return self.__dict__.get("_parent")

    def is_root(self) -> bool:
        """Whether no module is around it.

        Returns:
            True or False.
        """
        return self.parent is None

    def get_path_name(self) -> str:
        """Its name after those of the modules around it.

        Returns:
            Names with an `@` before and slashes between.
        """
        around = "" if self.parent is None else f"{self.parent.get_path_name()}/"
        return f"{around}@{self.name}"

    def get_scope_name(self) -> str:
        """The path of the first submodule, of its first submodule, and so on.

        Returns:
            Names with an `@` before and slashes between.
        """
        for name, module in self.submodules.items():
            return f"@{name}/{module.get_scope_name()}".strip("/")
        return ""

    def get_parameters(
        self, recursive: bool = True, grad_only: bool = False, memo: set[Variable] | None = None
    ) -> Parameters:
        """Its parameters, each once: those of submodules first.

        Args:
            recursive: Whether to list those of submodules.
            grad_only: Whether to leave out parameters that need no gradient.
            memo: Variables to leave out, to which the ones that are found are added.

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
            key: Path, as `get_parameters` gives it.
            param: The variable.
            raise_if_missing: Whether a submodule that is not there is an error.

        Raises:
            ParameterError: If the path ends with the name of a submodule, or leads to one that is not there.
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
            params: Variables by path, as `get_parameters` gives them.
            raise_if_missing: Whether a submodule that is not there is an error.
        """
        for key, param in params.items():
            self.set_parameter(key, param, raise_if_missing)

    def update_parameter(self) -> None:
        """Register its own parameters anew."""
        self.set_parameters(self.get_parameters())

    def load_parameters(self, path: PathOrFile, extension: str | None = ".h5", raise_if_missing: bool = True) -> None:
        """Load parameters from a file that `save_parameters` wrote: into those that are there, or as new ones.

        Args:
            path: Path, or a file open for reading bytes.
            extension: The format, where `path` does not say it.
            raise_if_missing: Whether a submodule that is not there is an error.

        Raises:
            ParameterError: If a shape differs, or a submodule is not there.
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
            if key in own:  # Graphs and attributes have hold of it.
                own[key].d, own[key].need_grad = variable.d, variable.need_grad

    def save_parameters(self, path: PathOrFile, extension: str | None = ".h5") -> None:
        """Save its parameters and those of submodules.

        Args:
            path: Path, or a file open for writing bytes.
            extension: The format, where `path` does not say it.
        """
        save_parameters(path, self.get_parameters(grad_only=False), _needed(path, extension))

    def zero_grad(self) -> None:
        """Set the gradients of its parameters to zero."""
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
        """As `call`."""
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes: subclasses define it.

        Args:
            *args: What it takes.
            **kwargs: What it takes.

        Raises:
            NotImplementedError: If a subclass does not.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method call(...), got none")


def checked(op: str, module: Any) -> Module:
    """Refuse what is no module."""
    if not isinstance(module, Module):
        raise CallError(f"{op}: expected Modules, got {type(module).__name__}")
    return module


def _needed(path: PathOrFile, extension: str | None) -> str | None:
    """The extension, unless a path has one of its own."""
    own = isinstance(path, (str, os.PathLike)) and Path(path).suffix
    return None if own else extension
