"""Layers whose weights are binary, rounded or pruned. They are made from the declarations in `families.py`."""

from .declared import made
from .families import LAYERS

__all__ = [*LAYERS]

globals().update({name: made(layer, __name__) for name, layer in LAYERS.items()})
