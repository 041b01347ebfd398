"""Networks as objects: modules that keep their parameters to themselves."""

from .module import Module
from .sequential import Sequential

__all__ = ["Module", "Sequential"]
