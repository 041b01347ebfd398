"""Layers that are several functions in a row, and noise for virtual adversarial training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _core
from .._core import ArgumentError, NdArray, PythonFunction, Variable
from .composed import batch_normalization

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import FunctionVariable

__all__ = ["fused_batch_normalization", "fused_convolution", "sync_batch_normalization", "vat_noise"]

T = TypeVar("T", Variable, NdArray)

f = _core.functions

NONLINEARITIES: dict[str, tuple[Callable[..., Any], int]] = {
    "identity": (lambda x: x, 0),
    "relu": (f.relu, 0),
    "sigmoid": (f.sigmoid, 0),
    "tanh": (f.tanh, 0),
    "leaky_relu": (f.leaky_relu, 1),
    "elu": (f.elu, 1),
    "relu6": (f.relu6, 0),
}
"""The activations of a fused convolution, and how many arguments they take."""


def fused_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> Any:
    """Batch normalization, an addition and an activation: `y = relu(batch_normalization(x, ...) + z)`.

    It is these functions in a row, which run as one where that pays.

    Args:
        x: Input of any shape.
        beta: Offset, as in `batch_normalization`.
        gamma: Scale, as in `batch_normalization`.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        z: Array of the shape of `x` that is added; none by default.
        axes: Axes that have their own statistics.
        decay_rate: Share of the running statistics that stays in each run, from 0 to 1.
        eps: Added to the variance, zero or more.
        batch_stat: Use the statistics of `x`, else the running ones.
        nonlinearity: The activation: `relu`.
        output_stat: Return the statistics of `x` too.
        n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance.

    Raises:
        ArgumentError: If `nonlinearity` is another, or an argument of `batch_normalization` is out of range.
        ShapeError: If an input has the wrong shape.
    """
    if nonlinearity != "relu":
        raise ArgumentError(f"fused_batch_normalization: expected `nonlinearity` to be 'relu', got {nonlinearity!r}")
    found = batch_normalization(
        x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat, n_outputs
    )
    y, *statistics = found if isinstance(found, tuple) else (found,)
    y = f.relu(y if z is None else f.add2(y, z))
    return (y, *statistics) if statistics else y


def sync_batch_normalization(
    x: T,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    comm: Any = None,
    group: str = "world",
    axes: int | Sequence[int] = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
    n_outputs: int | None = None,
) -> Any:
    """Batch normalization with the statistics of the examples of all processes, which have as many each.

    In one process it is `batch_normalization`.

    Args:
        x: Input of any shape.
        beta: Offset, as in `batch_normalization`.
        gamma: Scale, as in `batch_normalization`.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        comm: Communicator of the processes, or None for one process.
        group: Group of its processes.
        axes: Axes that have their own statistics.
        decay_rate: Share of the running statistics that stays in each run, from 0 to 1.
        eps: Added to the variance, zero or more.
        batch_stat: Use the statistics of `x`, else the running ones.
        output_stat: Return the statistics of `x` too.
        n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance.

    Raises:
        ArgumentError: If an argument of `batch_normalization` is out of range.
        ShapeError: If an input has the wrong shape.
    """
    if batch_stat and getattr(comm, "size", 1) != 1:
        from ..communicators import functions

        over_processes: Any = functions.sync_batch_normalization
        return over_processes(
            x, beta, gamma, mean, variance, comm, group, axes, decay_rate, eps, batch_stat, output_stat, n_outputs
        )
    return batch_normalization(
        x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat, n_outputs
    )


def fused_convolution(
    x: T,
    weight: T,
    bias: T | None = None,
    beta: T | None = None,
    gamma: T | None = None,
    mean: T | None = None,
    variance: T | None = None,
    z: T | None = None,
    base_axis: int = 1,
    pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    nonlinearity_args: Sequence[float] = (),
    pad_mode: str = "constant",
    constant_value: float = 0.0,
) -> T:
    """Padding, convolution, batch normalization, an addition and an activation, each but the convolution if wanted.

    It is these functions in a row, which run as one where that pays.

    Args:
        x: Input, as of `convolution`.
        weight: Weight, as of `convolution`.
        bias: Bias, as of `convolution`; none by default.
        beta: Offset of the batch normalization; with `gamma`, `mean` and `variance`, or there is none.
        gamma: Scale of the batch normalization.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        z: Array of the shape of the output that is added before the activation; none by default.
        base_axis: The axis of the channels; the axes before it are the batch.
        pad: Elements added at both ends of each spatial axis; or at either end of each axis, as in `pad`.
        stride: As in `convolution`.
        dilation: As in `convolution`.
        group: As in `convolution`.
        channel_last: As in `convolution`.
        decay_rate: As in `batch_normalization`.
        eps: As in `batch_normalization`.
        batch_stat: As in `batch_normalization`.
        nonlinearity: The activation: `identity` or none of its name, `relu`, `sigmoid`, `tanh`, `leaky_relu`, `elu`,
            `relu6`.
        nonlinearity_args: Its arguments: `alpha` of `leaky_relu` and `elu`.
        pad_mode: As `mode` of `pad`.
        constant_value: As in `pad`.

    Returns:
        Array of the shape of the convolution's output.

    Raises:
        ArgumentError: If the activation is unknown or has not the arguments that it takes, or only some inputs of the
            batch normalization are given.
        ShapeError: If the shapes do not fit together.
    """
    activation, n = NONLINEARITIES.get(nonlinearity or "identity", (None, 0))
    if activation is None:
        raise ArgumentError(
            f"fused_convolution: expected `nonlinearity` to be one of {', '.join(NONLINEARITIES)}, got {nonlinearity!r}"
        )
    if len(nonlinearity_args) != n:
        raise ArgumentError(
            f"fused_convolution: expected {n} `nonlinearity_args` for {nonlinearity}, got {len(nonlinearity_args)}"
        )
    of_batch = [beta, gamma, mean, variance]
    given = sum(part is not None for part in of_batch)
    if given not in (0, 4):
        raise ArgumentError(f"fused_convolution: expected beta, gamma, mean and variance or none of them, got {given}")
    spatial = x.ndim - base_axis - 1
    width = None if pad is None else [int(p) for p in np.ravel(pad)]
    if width and (len(width) != spatial or pad_mode != "constant" or constant_value != 0):
        if len(width) == spatial:
            width = [p for side in width for p in (side, side)] + ([0, 0] if channel_last else [])
        x, width = f.pad(x, width, pad_mode, constant_value), None
    y = f.convolution(x, weight, bias, base_axis, width, stride, dilation, group, channel_last)
    if given:
        axis = y.ndim - 1 if channel_last else base_axis
        y = batch_normalization(y, beta, gamma, mean, variance, (axis,), decay_rate, eps, batch_stat)
    if z is not None:
        y = f.add2(y, z)
    result: T = activation(y, *nonlinearity_args)
    return result


class VATNoise(PythonFunction):
    """See `vat_noise`."""

    def __init__(self, base_axis: int, eps: float) -> None:
        super().__init__()
        self.base_axis = base_axis
        self.eps = eps

    @property
    def name(self) -> str:
        """As the function shows itself."""
        return "VATNoise"

    def min_outputs(self) -> int:
        """One."""
        return 1

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """The output has the shape of the input."""
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Scales each sample to the norm."""
        x = inputs[0].d
        axes = tuple(range(self.base_axis, x.ndim))
        outputs[0].d = x * (self.eps / np.sqrt((x**2).sum(axes, keepdims=True) + 1e-8))

    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Writes the gradient of the output into `w`; those of the inputs are zero."""
        inputs[1].data.data = np.asarray(outputs[0].g * self.eps)
        for x, wanted, adds in zip(inputs, propagate_down, accum, strict=True):
            if wanted and not adds:
                x.g = 0.0

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """Outputs are not looked at."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """Nor are inputs."""
        return False


def vat_noise(x: Variable, w: Variable, base_axis: int = 1, eps: float = 1.0) -> Variable:
    """Noise for virtual adversarial training: each sample scaled to norm `eps`.

    `y = eps * x / sqrt(sum(x ** 2) + 1e-8)`, the sum being that of the sample. A backward run writes `eps` times the
    gradient of `y` into `w`: the noise of the next round. The gradients of `x` and `w` are zero.

    Args:
        x: Noise; the axes from `base_axis` on make one sample.
        w: Array of the shape of `x`; overwritten by a backward run.
        base_axis: First axis of a sample, 1 or more.
        eps: Euclidean norm of a sample's noise.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` and `w` differ in shape.
        ArgumentError: If `base_axis` is out of range.

    Source:
        Miyato et al., Distributional Smoothing with Virtual Adversarial Training, 2015, arXiv:1507.00677.
    """
    if x.shape != w.shape:
        raise _core.ShapeError(f"vat_noise: expected x and w of one shape, got shapes {x.shape}, {w.shape}")
    if not 0 < base_axis < x.ndim:
        raise ArgumentError(f"vat_noise: expected `base_axis` to be from 1 to {x.ndim - 1}, got {base_axis}")
    result: Variable = VATNoise(base_axis, eps)(x, w)
    return result
