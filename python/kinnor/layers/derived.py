"""Layers for a number of axes, and activations without arguments. They are made from the rows in `families.py`."""

from .families import LAYERS, made

__all__ = [*(row.name for row in LAYERS), "SiLU"]

# Pickles and errors name the package, which programs import.
globals().update({row.name: made(row, __package__) for row in LAYERS})
SiLU = globals()["Swish"]
