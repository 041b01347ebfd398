"""Modules: networks as objects with their own parameters."""

from .containers import ModuleDict, ModuleList, Sequential
from .module import LoadedNames, Module

__all__ = ["LoadedNames", "Module", "ModuleDict", "ModuleList", "Sequential"]
