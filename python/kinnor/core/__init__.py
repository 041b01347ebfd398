"""Networks as objects: modules that keep their parameters to themselves."""

from .containers import ModuleDict, ModuleList
from .module import LoadedNames, Module
from .sequential import Sequential

__all__ = ["LoadedNames", "Module", "ModuleDict", "ModuleList", "Sequential"]
