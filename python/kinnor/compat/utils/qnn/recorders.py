"""Functions that return their input and record its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...._core import ArgumentError, RangeError, ShapeError
from ....context import get_current_context
from ....function import PythonFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...._core import Variable
    from ....context import Context

__all__ = [
    "AbsMaxRecorder",
    "MaxMaxRecorder",
    "MaxMvaRecorder",
    "MinMaxMinMaxRecorder",
    "MinMaxMvaRecorder",
    "abs_max_recorder",
    "max_max_recorder",
    "max_mva_recorder",
    "minmax_minmax_recorder",
    "minmax_mva_recorder",
]


class _Recorder(PythonFunction):
    """The base class of recorders: returns its first input, and stores numbers about it in its other inputs."""

    KEPT: ClassVar[tuple[str, ...]] = ("max",)
    """Names of the numbers that it stores, one for each further input."""

    def __init__(self, ctx: Context | None, training: bool = True) -> None:
        super().__init__(ctx)
        self.training = training

    def min_outputs(self) -> int:
        """The number of outputs: one."""
        return 1

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """Compute the numbers to store after a batch, one for each of `KEPT`.

        Args:
            x: The batch, which is not empty.
            before: The stored numbers, as arrays of one element.

        Raises:
            NotImplementedError: If a subclass does not define it.
        """
        raise NotImplementedError

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Check the inputs: the stored numbers have as many axes as the first input, all of length 1."""
        if len(inputs) != 1 + len(self.KEPT):
            raise ArgumentError(f"{self.name}: expected inputs x, {', '.join(self.KEPT)}, got {len(inputs)} inputs")
        x = inputs[0]
        for name, kept in zip(self.KEPT, inputs[1:], strict=True):
            if tuple(kept.shape) != (1,) * x.ndim:
                raise ShapeError(f"{self.name}: expected `{name}` of shape {(1,) * x.ndim}, got shape {kept.shape}")
        outputs[0].reset_shape(x.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Copy the first input to the output, and update the stored numbers."""
        x = inputs[0].d
        outputs[0].d = x
        if self.training and x.size:
            for kept, number in zip(inputs[1:], self.seen(x, [v.d for v in inputs[1:]]), strict=True):
                kept.d = number

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Pass the gradient on unchanged."""
        if propagate_down[0]:
            inputs[0].g = inputs[0].g + outputs[0].g if accum[0] else outputs[0].g

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: no gradient reads the output."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """False: no gradient reads an input."""
        return False


class _MovingRecorder(_Recorder):
    """The base class of recorders of moving averages."""

    def __init__(self, ctx: Context | None, decay: float = 0.99, training: bool = True) -> None:
        if not 0 <= decay <= 1:
            raise RangeError(f"{type(self).__name__}: expected `decay` from 0 to 1, got {decay!r}")
        super().__init__(ctx, training)
        self.decay = decay

    def averaged(self, before: NDArray[Any], number: Any) -> NDArray[Any]:
        """The moving average after another number."""
        return np.asarray(self.decay * before + (1 - self.decay) * number)


class MinMaxMinMaxRecorder(_Recorder):
    """Records minimum and maximum of all batches; see `minmax_minmax_recorder`.

    Args:
        ctx: A context, without effect.
        training: Whether to record.
    """

    KEPT = ("min", "max")

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """Minimum and maximum of the batch and the stored numbers."""
        return np.minimum(before[0], x.min()), np.maximum(before[1], x.max())


class AbsMaxRecorder(_Recorder):
    """Records the maximum magnitude of all batches; see `abs_max_recorder`.

    Args:
        ctx: A context, without effect.
        training: Whether to record.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The maximum magnitude of the batch and the stored number."""
        return [np.maximum(before[0], np.abs(x).max())]


class MinMaxMvaRecorder(_MovingRecorder):
    """Records moving averages of the minimum and maximum of batches; see `minmax_mva_recorder`.

    Args:
        ctx: A context, without effect.
        decay: Weight of the previous average, 0 to 1.
        training: Whether to record.

    Raises:
        RangeError: If `decay` is not from 0 to 1.
    """

    KEPT = ("min", "max")

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The averages after the batch."""
        return self.averaged(before[0], x.min()), self.averaged(before[1], x.max())


class MaxMaxRecorder(_Recorder):
    """Records the maximum of all batches; see `max_max_recorder`.

    Args:
        ctx: A context, without effect.
        training: Whether to record.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The maximum of the batch and the stored number."""
        return [np.maximum(before[0], x.max())]


class MaxMvaRecorder(_MovingRecorder):
    """Records the moving average of the maximum of batches; see `max_mva_recorder`.

    Args:
        ctx: A context, without effect.
        decay: Weight of the previous average, 0 to 1.
        training: Whether to record.

    Raises:
        RangeError: If `decay` is not from 0 to 1.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The average after the batch."""
        return [self.averaged(before[0], x.max())]


def minmax_minmax_recorder(x: Variable, m: Variable, M: Variable, training: bool = True) -> Any:
    """Return an array and record its minimum and maximum over all runs.

    Args:
        x: Array of any shape.
        m: Variable that stores the minimum: shape (1, 1, ...), as many axes as `x`.
        M: Variable that stores the maximum, with the same shape.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        ShapeError: If `m` or `M` has another shape.

        >>> import kinnor as nn
        >>> from kinnor.utils.qnn import minmax_minmax_recorder
        >>> m, M = nn.Variable((1,)), nn.Variable((1,))
        >>> m.d = M.d = 0
        >>> minmax_minmax_recorder(nn.Variable.from_numpy_array([-1.0, 3.0]), m, M).forward()
        >>> m.d.item(), M.d.item()
        (-1.0, 3.0)
    """
    return MinMaxMinMaxRecorder(get_current_context(), training)(x, m, M)


def abs_max_recorder(x: Variable, M: Variable, training: bool = True) -> Any:
    """Return an array and record its maximum magnitude over all runs.

    Args:
        x: Array of any shape.
        M: Variable that stores it: shape (1, 1, ...), as many axes as `x`.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        ShapeError: If `M` has another shape.
    """
    return AbsMaxRecorder(get_current_context(), training)(x, M)


def minmax_mva_recorder(x: Variable, m: Variable, M: Variable, decay: float = 0.99, training: bool = True) -> Any:
    """Return an array and record moving averages of its minimum and maximum.

    Args:
        x: Array of any shape.
        m: Variable that stores the average of minima: shape (1, 1, ...), as many axes as `x`.
        M: Variable that stores the average of maxima, with the same shape.
        decay: Weight of the previous average, 0 to 1.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        RangeError: If `decay` is not from 0 to 1.
        ShapeError: If `m` or `M` has another shape.
    """
    return MinMaxMvaRecorder(get_current_context(), decay, training)(x, m, M)


def max_max_recorder(x: Variable, M: Variable, training: bool = True) -> Any:
    """Return an array and record its maximum over all runs.

    Args:
        x: Array of any shape.
        M: Variable that stores it: shape (1, 1, ...), as many axes as `x`.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        ShapeError: If `M` has another shape.
    """
    return MaxMaxRecorder(get_current_context(), training)(x, M)


def max_mva_recorder(x: Variable, M: Variable, decay: float = 0.99, training: bool = True) -> Any:
    """Return an array and record a moving average of its maximum.

    Args:
        x: Array of any shape.
        M: Variable that stores it: shape (1, 1, ...), as many axes as `x`.
        decay: Weight of the previous average, 0 to 1.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        RangeError: If `decay` is not from 0 to 1.
        ShapeError: If `M` has another shape.
    """
    return MaxMvaRecorder(get_current_context(), decay, training)(x, M)
