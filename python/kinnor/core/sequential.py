"""`Sequential`: a chain of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .._core import IndexRangeError
from .module import Module, checked

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Sequential"]


class Sequential(Module):
    """A chain of modules: the outputs of each are the inputs of the next.

    Args:
        *args: Modules, or tuples of a name and a module. The default name is the module's name and its index.

    Raises:
        TypeError: If an item is not a module.

        >>> import kinnor as nn, kinnor.functions as F, kinnor.parametric_functions as PF
        >>> class Dense(nn.Module):
        ...     def __init__(self, n):
        ...         self.n = n
        ...     def call(self, x):
        ...         return F.relu(PF.affine(x, self.n))
        >>> network = nn.Sequential(Dense(8), ("last", Dense(2)))
        >>> network(nn.Variable((5, 3))).shape
        (5, 2)
        >>> list(network.get_parameters())[:3]
        ['@dense_0/affine/W', '@dense_0/affine/b', '@last/affine/W']
        >>> network[:1](nn.Variable((5, 3))).shape  # a slice has the same modules
        (5, 8)
    """

    def __init__(self, *args: Module | tuple[str, Module], **kwargs: Any) -> None:
        for place, given in enumerate(args):
            if isinstance(given, tuple):
                name, module = given[0], checked("Sequential", given[1])
            else:
                module = checked("Sequential", given)
                name = f"{module.name}_{place}"
            self.submodules[name] = module

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the modules one after another.

        Args:
            *args: Inputs of the first module.
            **kwargs: Further arguments of all modules.

        Returns:
            The output of the last one.
        """
        found: Any = args[0] if len(args) == 1 else args
        for module in self.submodules.values():
            found = module(*args, **kwargs)
            args = found if isinstance(found, tuple) else () if found is None else (found,)
        return found

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self.submodules.values()))

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return Sequential(*list(self.submodules.items())[index])
        modules = list(self.submodules.values())
        if not -len(modules) <= index < len(modules):
            raise IndexRangeError(f"Sequential: expected an index within {len(modules)} modules, got {index!r}")
        return modules[index]
