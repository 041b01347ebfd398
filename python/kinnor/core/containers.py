"""Modules that hold other modules: a list, a dict, and `Sequential`, a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from .._core import CallError, IndexRangeError, ParameterError
from .module import Module, checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ModuleDict", "ModuleList", "Sequential"]

T = TypeVar("T")


class ModuleList(Module, scoped=False):
    """Modules in a list. It is not called itself; a plain list as an attribute of a module does the same.

    Args:
        modules: The modules.

    Raises:
        TypeError: If one of them is no module.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> blocks = L.ModuleList(L.Linear(4, 4) for _ in range(3))
        >>> blocks.append(L.Linear(4, 2))
        >>> len(blocks), blocks[-1](nn.Variable((5, 4))).shape
        (4, (5, 2))
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def append(self, module: Module) -> None:
        """Add a module at the end.

        Args:
            module: The module.
        """
        self._replace_all([*self, module])

    def extend(self, modules: Iterable[Module]) -> None:
        """Add modules at the end.

        Args:
            modules: The modules.
        """
        self._replace_all([*self, *modules])

    def insert(self, index: int, module: Module) -> None:
        """Add a module before another one.

        Args:
            index: The place of the other one.
            module: The module.
        """
        modules = list(self)
        modules.insert(index, module)
        self._replace_all(modules)

    def _replace_all(self, modules: list[Module]) -> None:
        """Replaces all modules by these, named by their places."""
        for module in modules:
            checked("ModuleList", module)
        self.submodules.clear()
        for place, module in enumerate(modules):
            setattr(self, str(place), module)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self.submodules.values()))

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Module | ModuleList:
        modules = list(self)
        if isinstance(index, slice):
            part = ModuleList()
            part.submodules.update({str(place): module for place, module in enumerate(modules[index])})
            return part  # The modules keep their names and the list around them.
        return modules[_position(index, modules)]

    def __setitem__(self, index: int, module: Module) -> None:
        """Replaces the module at an index."""
        modules = list(self)
        modules[_position(index, modules)] = module
        self._replace_all(modules)

    def __delitem__(self, index: int) -> None:
        """Removes the module at an index; later modules move up."""
        modules = list(self)
        del modules[_position(index, modules)]
        self._replace_all(modules)


class ModuleDict(Module, scoped=False):
    """Modules in a dict. It is not called itself; a plain dict as an attribute of a module does the same.

    Args:
        modules: Modules by name.

    Raises:
        TypeError: If one of them is no module.
        ParameterError: If a name is empty or has a slash.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> heads = L.ModuleDict({"age": L.Linear(4, 1), "kind": L.Linear(4, 7)})
        >>> heads["kind"](nn.Variable((5, 4))).shape
        (5, 7)
        >>> list(heads.get_parameters())
        ['@age/W', '@age/b', '@kind/W', '@kind/b']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules, and replace modules of the same names.

        Args:
            modules: Modules by name.
        """
        for name, module in modules.items():
            self[name] = module

    def keys(self) -> Iterable[str]:
        """The names.

        Returns:
            Names in the order in which they were set.
        """
        return self.submodules.keys()

    def values(self) -> Iterable[Module]:
        """The modules.

        Returns:
            Modules in the order in which they were set.
        """
        return self.submodules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """The names and modules.

        Returns:
            Pairs of name and module.
        """
        return self.submodules.items()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.submodules))

    def __contains__(self, name: object) -> bool:
        return name in self.submodules

    def __getitem__(self, name: str) -> Module:
        if name not in self.submodules:
            raise ParameterError(f"ModuleDict: expected one of the names {list(self.submodules)}, got {name!r}")
        return self.submodules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        """Adds or replaces the module of a name."""
        checked("ModuleDict", module)
        if not name or "/" in name:
            raise ParameterError(f"ModuleDict: expected a name without '/', got {name!r}")
        self.submodules[name] = module
        module.__dict__.update(_name=name, _parent=self)

    def __delitem__(self, name: str) -> None:
        """Removes the module of a name."""
        _ = self[name]
        del self.submodules[name]


def _position(index: int, modules: list[Module]) -> int:
    """The place of an index, which may count from the end."""
    if not isinstance(index, int):
        raise CallError(f"ModuleList: expected an integer or a slice, got {index!r}")
    if not -len(modules) <= index < len(modules):
        raise IndexRangeError(f"ModuleList: expected an index within {len(modules)} modules, got {index}")
    return index


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
