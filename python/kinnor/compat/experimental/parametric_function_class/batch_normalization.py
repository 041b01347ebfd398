"""Batch normalization as a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .... import functions as F
from ...._core import RangeError
from ....initializer import ConstantInitializer
from .module import Module, parameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...._core import Variable
    from ....initializer import Initializer

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormalization"]


class BatchNormalization(Module):
    """Batch normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics over all axes but one.

    Args:
        n_features: Number of channels.
        n_dims: Number of axes of the input.
        axes: The axis of the channels, as a list of one.
        decay_rate: Decay rate of the running statistics.
        eps: Small number added to the variance.
        batch_stat: Without effect: the argument `test` of a call decides.
        output_stat: Whether to return mean and variance of the batch, too.
        fix_parameters: Whether shift and scale need no gradient.
        param_init: Initial values for `beta`, `gamma`, `mean`, `var`; by default 0, 1, 0, 1.

    Raises:
        RangeError: If `axes` does not have one element.
    """

    def __init__(
        self,
        n_features: int,
        n_dims: int,
        axes: Sequence[int] = (1,),
        decay_rate: float = 0.9,
        eps: float = 1e-5,
        batch_stat: bool = True,
        output_stat: bool = False,
        fix_parameters: bool = False,
        param_init: Mapping[str, Initializer] | None = None,
    ) -> None:
        if len(axes) != 1:
            raise RangeError(f"BatchNormalization: expected one of `axes`, got {axes}")
        shape = [1] * n_dims
        shape[axes[0]] = n_features
        init = {name: ConstantInitializer(value) for name, value in _DEFAULTS.items()} | dict(param_init or {})
        self.beta = parameter(init["beta"], shape, not fix_parameters)
        self.gamma = parameter(init["gamma"], shape, not fix_parameters)
        self.mean = parameter(init["mean"], shape, False)
        self.var = parameter(init["var"], shape, False)
        self.axes, self.decay_rate, self.eps, self.output_stat = axes, decay_rate, eps, output_stat

    def __call__(self, inp: Variable, test: bool = False) -> Any:
        """Apply the layer.

        Args:
            inp: Input, `n_dims` axes.
            test: Whether to use the running statistics, as in evaluation mode.

        Returns:
            Array of the shape of the input; with `output_stat` a tuple with mean and variance.
        """
        own = (self.beta, self.gamma, self.mean, self.var)
        batch_stat = self.training and not test
        return F.batch_normalization(inp, *own, self.axes, self.decay_rate, self.eps, batch_stat, self.output_stat)


_DEFAULTS = {"beta": 0, "gamma": 1, "mean": 0, "var": 1}
"""The initial value of each parameter."""


class _BatchNormOfAxes(BatchNormalization):
    """A batch normalization of inputs with `N_DIMS` axes.

    Args:
        n_features: Number of channels.
        axes: The axis of the channels, as a list of one.
        decay_rate: Decay rate of the running statistics.
        eps: Small number added to the variance.
        batch_stat: Without effect: the argument `test` of a call decides.
        output_stat: Whether to return mean and variance of the batch, too.
        fix_parameters: Whether shift and scale need no gradient.
        param_init: Initial values for `beta`, `gamma`, `mean`, `var`; by default 0, 1, 0, 1.
    """

    N_DIMS: ClassVar[int]

    def __init__(
        self,
        n_features: int,
        axes: Sequence[int] = (1,),
        decay_rate: float = 0.9,
        eps: float = 1e-5,
        batch_stat: bool = True,
        output_stat: bool = False,
        fix_parameters: bool = False,
        param_init: Mapping[str, Initializer] | None = None,
    ) -> None:
        super().__init__(
            n_features, self.N_DIMS, axes, decay_rate, eps, batch_stat, output_stat, fix_parameters, param_init
        )


class BatchNorm1d(_BatchNormOfAxes):
    """Batch normalization of inputs of 1 spatial axis: shape (n, channels, length)."""

    N_DIMS = 3


class BatchNorm2d(_BatchNormOfAxes):
    """Batch normalization of inputs of 2 spatial axes: shape (n, channels, height, width)."""

    N_DIMS = 4


class BatchNorm3d(_BatchNormOfAxes):
    """Batch normalization of inputs of 3 spatial axes: shape (n, channels, depth, height, width)."""

    N_DIMS = 5
