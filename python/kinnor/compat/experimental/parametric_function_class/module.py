"""The base class of layers: objects whose attributes are parameters."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import core
from ...._core import ParameterError, Variable
from ....display import Parameters
from ....parameter import get_parameters, load_parameters, parameter_scope, save_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ....files.parameter_file import PathOrFile
    from ....parameter.tree import Scope

__all__ = ["Module", "parameter"]


class Module(core.Module, scoped=False):
    """A module of NNabla's second kind: variables among its attributes are its parameters, with names without `@`.

    It is a `kinnor.Module`, so that both kinds may be parts of each other. Parametric functions that its methods call
    register their parameters in the current scope, not in the module.

    >>> import kinnor as nn
    >>> from kinnor.experimental.parametric_function_classes import Affine, Module
    >>> class Network(Module):
    ...     def __init__(self):
    ...         self.hidden, self.out = Affine(3, 4), Affine(4, 2)
    ...     def __call__(self, x):
    ...         return self.out(self.hidden(x))
    >>> list(Network().get_parameters())
    ['hidden/W', 'hidden/b', 'out/W', 'out/b']
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Leaves the methods of a subclass out of the scope that Kinnor's modules enter."""
        super().__init_subclass__(scoped=False, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Stores a submodule under its name in `__dict__`, too."""
        super().__setattr__(name, value)
        if isinstance(value, core.Module):
            self.__dict__[name] = value  # As in NNabla, whose programs look there.

    def get_parameters(self, grad_only: bool = True) -> Parameters:  # type: ignore[override]
        """The parameters of the module and of its submodules.

        Args:
            grad_only: Whether to leave out parameters that need no gradient.

        Returns:
            Variables by path.
        """
        return self._module_parameters(True, bool(grad_only), set())

    def _module_parameters(self, recursive: bool, grad_only: bool, memo: set[Variable]) -> Parameters:
        """Returns parameters by path, of submodules too if `recursive`, except those in `memo`, which it extends."""
        found = Parameters()
        for key, variable in self._own_parameters():
            if variable not in memo and (variable.need_grad or not grad_only):
                memo.add(variable)
                found[key] = variable
        for name, module in self.submodules.items() if recursive else ():
            own = module._module_parameters(recursive, grad_only, memo)
            found.update({f"{name.replace('.', '/')}/{key}": variable for key, variable in own.items()})
        return found

    def _own_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Yields the attributes that are variables, with their names."""
        for name, value in list(vars(self).items()):
            if isinstance(value, Variable):
                yield name, value

    def get_modules(self, memo: set[core.Module] | None = None, prefix: str = "") -> Iterator[tuple[str, core.Module]]:
        """It and its parts, each once.

        Args:
            memo: Modules to leave out. Modules that are found are added to it.
            prefix: Path of this module.

        Yields:
            Path and module.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        memo.add(self)
        yield prefix, self
        for name, module in list(self.submodules.items()):
            path = name.replace(".", "/")
            path = f"{prefix}/{path}" if prefix else path
            if isinstance(module, Module):
                yield from module.get_modules(memo, path)
            elif module not in memo:
                memo.add(module)
                yield path, module

    def save_parameters(self, path: PathOrFile, grad_only: bool = False) -> None:  # type: ignore[override]
        """Save its parameters.

        Args:
            path: Path whose extension is the format, or a file open for writing bytes.
            grad_only: Whether to leave out parameters that need no gradient.
        """
        save_parameters(path, self.get_parameters(grad_only))

    def load_parameters(self, path: PathOrFile) -> None:  # type: ignore[override]
        """Load its parameters from a file that `save_parameters` wrote; nothing changes if it does not fit.

        Args:
            path: Path whose extension is the format, or a file open for reading bytes.

        Raises:
            ParameterError: If a parameter is not in the file, or has another shape there.
        """
        scope: Scope = OrderedDict()
        with parameter_scope("", scope):
            load_parameters(path)
        loaded, own = get_parameters(scope, grad_only=False), self.get_parameters(grad_only=False)
        for name, variable in own.items():
            shape = loaded[name].shape if name in loaded else None
            if shape != variable.shape:
                got = "none" if shape is None else f"shape {shape}"
                raise ParameterError(
                    f"load_parameters: expected a parameter {name!r} of shape {variable.shape}, got {got}"
                )
        for name, variable in own.items():
            variable.d = loaded[name].d


def parameter(init: Any, shape: Sequence[int], need_grad: bool) -> Variable:
    """A variable with initial values from an initializer or an array."""
    values = init if isinstance(init, np.ndarray) else init(list(shape))
    variable = Variable(tuple(shape), need_grad)
    variable.d = values
    return variable
