"""Normalizations as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .. import functions as F
from .._check import number
from .._core import ShapeError
from ..core import Module
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from ..parametric_functions.arguments import multiple, sizes
from .arguments import check_axis, registered, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import Variable

__all__ = ["BatchNorm", "BatchNormOfAxes", "GroupNorm", "LayerNorm", "RMSNorm"]


class _ShiftAndScale(Module):
    """Parameters that normalizations have in common."""

    beta: Variable | None
    """The shift, or None."""
    gamma: Variable | None
    """The scale, or None."""

    def _set(self, shape: Sequence[int], affine: bool) -> None:
        """Registers shift and scale of this shape if `affine` is true; else both are None."""
        self.beta = self.gamma = None
        if affine:
            self.beta, self.gamma = self._filled("beta", shape, 0.0), self._filled("gamma", shape, 1.0)

    def _filled(self, name: str, shape: Sequence[int], value: float, need_grad: bool = True) -> Variable:
        """Registers and returns a parameter that is filled with `value`."""
        get_parameter_or_create(name, shape, ConstantInitializer(value), need_grad)
        return registered(self, name)

    def _shaped(self, shape: Sequence[int]) -> tuple[Variable | None, Variable | None]:
        """Shift and scale in the shape that an input asks for."""
        if self.beta is None or self.gamma is None:
            return None, None
        return F.reshape(self.beta, shape), F.reshape(self.gamma, shape)


class BatchNorm(_ShiftAndScale):
    """Batch normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`. The parametric function has the same name.

    In training mode it uses the statistics of the batch, and each forward run moves the running statistics towards
    them. In evaluation mode it uses the running statistics.

    Args:
        num_features: Number of channels.
        eps: Small number that keeps the root away from 0.
        decay_rate: Share of the running statistics that a step keeps; PyTorch's `momentum` is 1 - `decay_rate`.
        affine: True to have a scale and a shift.
        ndim: Number of axes of the parameters; inputs may have another number.

    Attributes:
        beta: Shift, shape (1, num_features, 1, ...), or None.
        gamma: Scale, of the same shape, or None.
        mean: Running mean, of the same shape.
        var: Running variance, of the same shape.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> layer = L.BatchNorm(3)
        >>> layer(nn.Variable((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
        >>> len(list(layer.parameters())), list(layer.state_dict())
        (2, ['beta', 'gamma', 'mean', 'var'])

    Source:
        Ioffe, Szegedy: Batch normalization, 2015.
    """

    mean: Variable
    var: Variable

    def __init__(
        self, num_features: int, eps: float = 1e-5, *, decay_rate: float = 0.9, affine: bool = True, ndim: int = 4
    ) -> None:
        op = type(self).__name__
        self.num_features = whole(op, "num_features", num_features)
        self.eps, self.decay_rate = number(op, "eps", eps), number(op, "decay_rate", decay_rate)
        shape = (1, self.num_features, *(1,) * (whole(op, "ndim", ndim) - 2))
        self._set(shape, affine)
        self.mean = self._filled("mean", shape, 0.0, need_grad=False)
        self.var = self._filled("var", shape, 1.0, need_grad=False)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.num_features}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, num_features, ...).

        Returns:
            Array of the shape of the input.

        Raises:
            ShapeError: If the input has another number of channels.
        """
        check_axis(type(self).__name__, x, 1, self.num_features)
        ndim = self.mean.ndim
        inner = x
        if x.ndim > ndim:
            inner = F.reshape(x, (*x.shape[: ndim - 1], -1))
        elif x.ndim < ndim:
            inner = F.reshape(x, (*x.shape, *(1,) * (ndim - x.ndim)))
        y = F.batch_normalization(
            inner, self.beta, self.gamma, self.mean, self.var, (1,), self.decay_rate, self.eps, self.training
        )
        return y if inner is x else F.reshape(y, x.shape)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class BatchNormOfAxes(BatchNorm):
    """The base of batch normalizations of inputs with up to `N_AXES` spatial axes."""

    N_AXES: ClassVar[int]

    def __init__(self, num_features: int, eps: float = 1e-5, *, decay_rate: float = 0.9, affine: bool = True) -> None:
        super().__init__(num_features, eps, decay_rate=decay_rate, affine=affine, ndim=2 + self.N_AXES)


class _OfLastAxes(_ShiftAndScale):
    """The base of normalizations over the last axes."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float) -> None:
        name = type(self).__name__
        self.normalized_shape = sizes(name, "normalized_shape", normalized_shape, single=True)
        self.eps = number(name, "eps", eps)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return ", ".join(map(str, self.normalized_shape))

    def _n_outer(self, x: Variable) -> int:
        """The number of axes before the normalized ones. Raises ShapeError if the last axes have other sizes."""
        outer = x.ndim - len(self.normalized_shape)
        if outer < 0 or x.shape[outer:] != self.normalized_shape:
            expected = f"an input whose last axes have the sizes {self.normalized_shape}"
            raise ShapeError(f"{type(self).__name__}: expected {expected}, got shape {x.shape}")
        return outer


class LayerNorm(_OfLastAxes):
    """Layer normalization over the last axis or axes: `y = gamma (x - mean) / sqrt(var + eps) + beta`.

    The parametric function `layer_normalization` normalizes over all axes but the first one by default. For inputs of
    three axes it does the same as this layer with `batch_axis=(0, 1)`.

    Args:
        normalized_shape: Size of the last axis, or sizes of the last axes.
        eps: Small number that keeps the root away from 0.
        affine: True to have a scale and a shift.

    Attributes:
        beta: Shift, shape `normalized_shape`, or None.
        gamma: Scale, of the same shape, or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.LayerNorm(8)(nn.Variable((2, 5, 8))).shape
        (2, 5, 8)

    Source:
        Ba, Kiros, Hinton: Layer normalization, 2016.
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(normalized_shape, eps)
        self._set(self.normalized_shape, affine)

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (..., *normalized_shape).

        Returns:
            Array of the shape of the input.

        Raises:
            ShapeError: If the last axes have other sizes.
        """
        outer = self._n_outer(x)
        inner = x if outer else F.reshape(x, (1, *x.shape))
        outer = max(outer, 1)
        beta, gamma = self._shaped((*(1,) * outer, *self.normalized_shape))
        y = F.layer_normalization(inner, beta, gamma, tuple(range(outer)), self.eps)
        return y if inner is x else F.reshape(y, x.shape)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class RMSNorm(_OfLastAxes):
    """Normalization by the root mean square over the last axis or axes: `y = gamma x / sqrt(mean(x^2) + eps)`.

    Decoders such as Llama use it. There is no shift, and the mean is not subtracted.

    Args:
        normalized_shape: Size of the last axis, or sizes of the last axes.
        eps: Small number that keeps the root away from 0.
        affine: True to have a scale.

    Attributes:
        gamma: Scale, shape `normalized_shape`, or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.RMSNorm(8)(nn.Variable((2, 5, 8))).shape
        (2, 5, 8)

    Source:
        Zhang, Sennrich: Root mean square layer normalization, 2019.
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-6, affine: bool = True) -> None:
        super().__init__(normalized_shape, eps)
        self.beta, self.gamma = None, self._filled("gamma", self.normalized_shape, 1.0) if affine else None

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (..., *normalized_shape).

        Returns:
            Array of the shape of the input.

        Raises:
            ShapeError: If the last axes have other sizes.
        """
        outer = self._n_outer(x)
        square = F.mean(x * x, axis=tuple(range(outer, x.ndim)), keepdims=True)
        y: Variable = x * (square + self.eps) ** -0.5
        return y if self.gamma is None else y * F.reshape(self.gamma, (*(1,) * outer, *self.normalized_shape))

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class GroupNorm(_ShiftAndScale):
    """Group normalization: `y = gamma (x - mean) / sqrt(var + eps) + beta`, statistics of groups of channels.

    Args:
        num_groups: Number of groups, which divides the number of channels.
        num_channels: Number of channels.
        eps: Small number that keeps the root away from 0.
        affine: True to have a scale and a shift.

    Attributes:
        beta: Shift, shape (num_channels,), or None.
        gamma: Scale, of the same shape, or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.GroupNorm(2, 4)(nn.Variable((3, 4, 8, 8))).shape
        (3, 4, 8, 8)

    Source:
        Wu, He: Group normalization, 2018.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        self.num_groups = whole("GroupNorm", "num_groups", num_groups)
        self.num_channels = whole("GroupNorm", "num_channels", num_channels)
        multiple("GroupNorm", "`num_channels`", self.num_channels, self.num_groups, "num_groups")
        self.eps = number("GroupNorm", "eps", eps)
        self._set((self.num_channels,), affine)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.num_groups}, {self.num_channels}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, num_channels, ...).

        Returns:
            Array of the shape of the input.

        Raises:
            ShapeError: If the input has another number of channels.
        """
        check_axis("GroupNorm", x, 1, self.num_channels)
        beta, gamma = self._shaped((1, self.num_channels, *(1,) * (x.ndim - 2)))
        return F.group_normalization(x, beta, gamma, self.num_groups, 1, (0,), self.eps)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call
