"""Integer inference: quantized layers of a static graph are rebuilt to compute with 8-bit integers.

In this package, *levels* are the 8-bit integers of a quantized array, and *numbers* the reals that they represent.
"""

from .converting import IntegerLayers

__all__ = ["IntegerLayers"]
