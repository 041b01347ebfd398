"""Modules: networks as objects with their own parameters."""

from .containers import ModuleDict, ModuleList
from .module import LoadedNames, Module
from .sequential import Sequential

__all__ = ["LoadedNames", "Module", "ModuleDict", "ModuleList", "Sequential"]
