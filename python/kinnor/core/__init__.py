"""Modules: networks as objects with their own parameters."""

from .module import Module
from .sequential import Sequential

__all__ = ["Module", "Sequential"]
