"""The base class of layers: objects whose attributes are parameters."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from ...._core import ParameterError, Variable
from ....display import Parameters
from ....parameter import get_parameters, load_parameters, parameter_scope, save_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ....files.parameter_file import PathOrFile
    from ....parameter.tree import Scope

__all__ = ["Module", "parameter"]


class Module:
    """A layer or model. Attributes that are variables are its parameters, attributes that are modules its submodules.

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

    def get_parameters(self, grad_only: bool = True) -> Parameters:
        """The parameters of the module and its submodules.

        Args:
            grad_only: Whether to leave out parameters that need no gradient.

        Returns:
            Variables by path.
        """
        found = Parameters()
        for prefix, module in self.get_modules():
            for name, value in vars(module).items():
                if isinstance(value, Variable) and (value.need_grad or not grad_only):
                    found[f"{prefix}/{name}" if prefix else name] = value
        return found

    def get_modules(self, memo: set[Module] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """The module and its submodules, each once.

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
        for name, value in list(vars(self).items()):
            if isinstance(value, Module):
                yield from value.get_modules(memo, f"{prefix}/{name}" if prefix else name)

    def save_parameters(self, path: PathOrFile, grad_only: bool = False) -> None:
        """Save the parameters of the module and its submodules.

        Args:
            path: Path whose extension is the format, or a file open for writing bytes.
            grad_only: Whether to leave out parameters that need no gradient.
        """
        save_parameters(path, self.get_parameters(grad_only))

    def load_parameters(self, path: PathOrFile) -> None:
        """Load the parameters from a file that `save_parameters` wrote. Nothing changes if a parameter does not match.

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
