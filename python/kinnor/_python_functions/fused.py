"""Fused layers, batch normalization over processes, and noise for virtual adversarial training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _check, _core
from .._core import ArgumentError, CallError, NdArray, PythonFunction, Variable
from .composed import batch_normalization, check_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import FunctionVariable

__all__ = ["fused_batch_normalization", "fused_convolution", "sync_batch_normalization", "vat_noise"]

T = TypeVar("T", Variable, NdArray)

f = _core.functions

over_processes: list[Callable[..., Any]] = []
"""Computes `sync_batch_normalization` over several processes. Importing `kinnor.distributed` puts it here."""


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
    check_statistics("fused_batch_normalization", mean, variance, batch_stat)
    how = (axes, decay_rate, eps, batch_stat, nonlinearity, output_stat)
    return f.fused_batch_normalization(x, beta, gamma, mean, variance, z, *how, n_outputs=n_outputs)


fused_batch_normalization.__doc__ = f.fused_batch_normalization.__doc__


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
    """Batch normalization with the statistics of all processes' examples. All must have the same number of examples.

    In one process it equals `batch_normalization`.

    Args:
        x: Input of any shape.
        beta: Offset, as in `batch_normalization`.
        gamma: Scale, as in `batch_normalization`.
        mean: Running mean, overwritten with `batch_stat`.
        variance: Running variance, overwritten with `batch_stat`.
        comm: Communicator of the processes, or None for one process.
        group: Group of its processes.
        axes: Axes with separate statistics.
        decay_rate: Weight of the old running statistics in an update, from 0 to 1.
        eps: Added to the variance, zero or more.
        batch_stat: Whether to use the statistics of `x`; otherwise the running statistics.
        output_stat: Whether to return the statistics of `x` as well.
        n_outputs: Number of outputs, 1 or 3. 3 has the same effect as `output_stat`.

    Returns:
        Array of the shape of `x`; with `output_stat` also its mean and its variance.

    Raises:
        ArgumentError: If an argument of `batch_normalization` is out of range.
        ShapeError: If an input has the wrong shape.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([[1.0, 10.0], [3.0, 30.0]])
        >>> F.sync_batch_normalization(x).data.round(3)
        array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """
    _check.text("sync_batch_normalization", "group", group)
    if comm is not None and not hasattr(comm, "size"):
        raise CallError(f"sync_batch_normalization: expected `comm` to be a communicator or None, got {comm!r}")
    if batch_stat and getattr(comm, "size", 1) != 1:
        if not over_processes:
            raise CallError(f"sync_batch_normalization: expected a communicator of Kinnor, got {comm!r}")
        return over_processes[0](
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
    nonlinearity: str | None = "relu",
    nonlinearity_args: Sequence[float] = (),
    pad_mode: str = "constant",
    constant_value: float = 0.0,
) -> T:
    check_statistics("fused_convolution", mean, variance, batch_stat)
    layers = (decay_rate, eps, batch_stat, nonlinearity or "identity", nonlinearity_args, pad_mode, constant_value)
    result: T = f.fused_convolution(
        x, weight, bias, beta, gamma, mean, variance, z, base_axis, pad, stride, dilation, group, channel_last, *layers
    )
    return result


fused_convolution.__doc__ = f.fused_convolution.__doc__


class VATNoise(PythonFunction):
    """The function of the graph behind `vat_noise`."""

    def __init__(self, base_axis: int, eps: float) -> None:
        super().__init__()
        self.base_axis = base_axis
        self.eps = eps

    def min_outputs(self) -> int:
        """The number of outputs."""
        return 1

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Sets the shape of the output."""
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Scales each sample to the norm."""
        x = inputs[0].d
        axes = tuple(range(self.base_axis, x.ndim))
        wide = x.astype(np.float64)
        largest = np.abs(wide).max(axes, keepdims=True, initial=1e-4)
        unit = wide / largest
        norm = np.sqrt((unit**2).sum(axes, keepdims=True) + (1e-4 / largest) ** 2)
        outputs[0].d = (unit * (self.eps / norm)).astype(x.dtype)

    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Writes `eps` times the gradient of the output to `w`. The gradients of the inputs are zero."""
        inputs[1].data.data = np.asarray(outputs[0].g * self.eps)
        for x, wanted, adds in zip(inputs, propagate_down, accum, strict=True):
            if wanted and not adds:
                x.g = 0.0

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: gradients do not read outputs."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """False: gradients do not read inputs."""
        return False


def vat_noise(x: Variable, w: Variable, base_axis: int = 1, eps: float = 1.0) -> Variable:
    """Noise for virtual adversarial training: each sample scaled to norm `eps`.

    `y = eps * x / sqrt(sum(x ** 2) + 1e-8)`, with the sum over each sample. A backward run writes `eps` times the
    gradient of `y` to `w`, as the noise of the next round. The gradients of `x` and `w` are zero.

    Args:
        x: Noise; the axes from `base_axis` on make one sample.
        w: Array of the shape of `x`; overwritten by a backward run.
        base_axis: First axis of a sample, 1 or more; a negative one counts from the end.
        eps: Euclidean norm of a sample's noise.

    Returns:
        Array of the shape of `x`.

    Raises:
        ShapeError: If `x` and `w` differ in shape.
        ArgumentError: If `base_axis` is out of range.

    Source:
        Miyato et al., Distributional Smoothing with Virtual Adversarial Training, 2015, arXiv:1507.00677.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x, w = (nn.Variable.from_numpy_array([[3.0, 4.0]]) for _ in range(2))
        >>> y = F.vat_noise(x, w, eps=10.0)
        >>> y.forward()
        >>> y.d
        array([[6., 8.]], dtype=float32)
    """
    _check.arrays("vat_noise", x=x, w=w)
    base_axis, eps = _check.whole("vat_noise", "base_axis", base_axis), _check.number("vat_noise", "eps", eps)
    if x.shape != w.shape:
        raise _core.ShapeError(f"vat_noise: expected x and w of one shape, got shapes {x.shape}, {w.shape}")
    base = base_axis + x.ndim if base_axis < 0 else base_axis
    if not 0 < base < x.ndim:
        raise ArgumentError(f"vat_noise: expected `base_axis` to be from 1 to {x.ndim - 1}, got {base_axis}")
    result: Variable = VATNoise(base, eps)(x, w)
    return result
