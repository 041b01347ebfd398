"""Embedding as a class."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from .... import functions as F
from ....initializer import UniformInitializer
from ....parametric_functions.arguments import sizes
from .module import Module, parameter

if TYPE_CHECKING:
    from ...._core import Variable
    from ....initializer import Initializer

__all__ = ["Embed"]


class Embed(Module):
    """A learned vector for each index: `y = W[x]`.

    Args:
        n_inputs: Number of different indices.
        n_features: Length of the vectors.
        w_init: Initial vectors; by default uniform from -sqrt(3) to sqrt(3).
        fix_parameters: Whether the vectors need no gradient.
    """

    def __init__(
        self, n_inputs: int, n_features: int, w_init: Initializer | None = None, fix_parameters: bool = False
    ) -> None:
        shape = sizes("Embed", "(n_inputs, n_features)", (n_inputs, n_features))
        w_init = UniformInitializer((-sqrt(3.0), sqrt(3.0))) if w_init is None else w_init
        self.W = parameter(w_init, shape, not fix_parameters)

    def __call__(self, inp: Variable) -> Variable:
        """Look up the vectors of indices.

        Args:
            inp: Indices, any shape.

        Returns:
            Array of shape (*inp.shape, n_features).
        """
        return F.embed(inp, self.W)
