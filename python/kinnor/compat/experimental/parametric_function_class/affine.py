"""Affine transformation as a class."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .... import functions as F
from ....initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ....parametric_functions.arguments import sizes
from .module import Module, parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from ...._core import Variable
    from ....initializer import Initializer

__all__ = ["Affine", "Linear"]


class Affine(Module):
    """Affine transformation: `y = x W + b`.

    Args:
        n_inmaps: Number of input features.
        n_outmaps: Number of output features, or a shape whose product is the number.
        base_axis: First axis of the features.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether the parameters need no gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
    """

    def __init__(
        self,
        n_inmaps: int,
        n_outmaps: int | Sequence[int],
        base_axis: int = 1,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        fix_parameters: bool = False,
        rng: RandomState | None = None,
        with_bias: bool = True,
    ) -> None:
        outputs = prod(sizes("Affine", "n_outmaps", n_outmaps, single=True))
        (inputs,) = sizes("Affine", "n_inmaps", n_inmaps, single=True)
        if w_init is None:
            w_init = UniformInitializer(calc_uniform_lim_glorot(inputs, outputs), rng)
        self.W = parameter(w_init, (inputs, outputs), not fix_parameters)
        b_init = ConstantInitializer() if b_init is None else b_init
        self.b = parameter(b_init, (outputs,), not fix_parameters) if with_bias else None
        self.base_axis = base_axis

    def __call__(self, inp: Variable) -> Variable:
        """Apply the layer.

        Args:
            inp: Input, shape (*batch, *inputs).

        Returns:
            Array of shape (*batch, outputs).
        """
        return F.affine(inp, self.W, self.b, self.base_axis)


Linear = Affine
