"""Functions that pass an array on and keep its range."""

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
    """Passes an array on, and keeps one number of it or two in its other inputs."""

    KEPT: ClassVar[tuple[str, ...]] = ("max",)

    def __init__(self, ctx: Context | None, training: bool = True) -> None:
        super().__init__(ctx)
        self.training = training

    @property
    def name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def min_outputs(self) -> int:
        """How many outputs there are."""
        return 1

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """What is kept after a batch: a number for each of `KEPT`.

        Args:
            x: The batch, not empty.
            before: What was kept, each of one element.

        Raises:
            NotImplementedError: Unless a class defines it.
        """
        raise NotImplementedError

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """The output has the shape of the first input; the others have as many axes, all of length 1."""
        if len(inputs) != 1 + len(self.KEPT):
            raise ArgumentError(f"{self.name}: expected inputs x, {', '.join(self.KEPT)}, got {len(inputs)} inputs")
        x = inputs[0]
        for name, kept in zip(self.KEPT, inputs[1:], strict=True):
            if tuple(kept.shape) != (1,) * x.ndim:
                raise ShapeError(f"{self.name}: expected `{name}` of shape {(1,) * x.ndim}, got shape {kept.shape}")
        outputs[0].reset_shape(x.shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Pass `x` on, and keep what it shows."""
        x = inputs[0].d
        outputs[0].d = x
        if self.training and x.size:
            for kept, number in zip(inputs[1:], self.seen(x, [v.d for v in inputs[1:]]), strict=True):
                kept.d = number

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """The gradient passes as it is."""
        if propagate_down[0]:
            inputs[0].g = inputs[0].g + outputs[0].g if accum[0] else outputs[0].g

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """No gradient reads the output."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """No gradient reads an input."""
        return False


class _MovingRecorder(_Recorder):
    """Keeps moving averages."""

    def __init__(self, ctx: Context | None, decay: float = 0.99, training: bool = True) -> None:
        if not 0 <= decay <= 1:
            raise RangeError(f"{type(self).__name__}: expected `decay` from 0 to 1, got {decay!r}")
        super().__init__(ctx, training)
        self.decay = decay

    def averaged(self, before: NDArray[Any], number: Any) -> NDArray[Any]:
        """What was, and a little of what is."""
        return np.asarray(self.decay * before + (1 - self.decay) * number)


class MinMaxMinMaxRecorder(_Recorder):
    """Keeps the least and the greatest element of all batches; see `minmax_minmax_recorder`.

    Args:
        ctx: Where it runs.
        training: Whether it records.
    """

    KEPT = ("min", "max")

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The least and the greatest, of the batch and what was."""
        return np.minimum(before[0], x.min()), np.maximum(before[1], x.max())


class AbsMaxRecorder(_Recorder):
    """Keeps the greatest magnitude of all batches; see `abs_max_recorder`.

    Args:
        ctx: Where it runs.
        training: Whether it records.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The greatest magnitude, of the batch and what was."""
        return [np.maximum(before[0], np.abs(x).max())]


class MinMaxMvaRecorder(_MovingRecorder):
    """Keeps moving averages of the least and the greatest element of batches; see `minmax_mva_recorder`.

    Args:
        ctx: Where it runs.
        decay: The share of what was, 0 to 1.
        training: Whether it records.

    Raises:
        RangeError: If `decay` is not in 0 to 1.
    """

    KEPT = ("min", "max")

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The averages after a batch."""
        return self.averaged(before[0], x.min()), self.averaged(before[1], x.max())


class MaxMaxRecorder(_Recorder):
    """Keeps the greatest element of all batches; see `max_max_recorder`.

    Args:
        ctx: Where it runs.
        training: Whether it records.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The greatest element, of the batch and what was."""
        return [np.maximum(before[0], x.max())]


class MaxMvaRecorder(_MovingRecorder):
    """Keeps the moving average of the greatest element of batches; see `max_mva_recorder`.

    Args:
        ctx: Where it runs.
        decay: The share of what was, 0 to 1.
        training: Whether it records.

    Raises:
        RangeError: If `decay` is not in 0 to 1.
    """

    def seen(self, x: NDArray[Any], before: Sequence[NDArray[Any]]) -> Sequence[Any]:
        """The average after a batch."""
        return [self.averaged(before[0], x.max())]


def minmax_minmax_recorder(x: Variable, m: Variable, M: Variable, training: bool = True) -> Any:
    """Pass an array on, and keep its least and its greatest element, of all runs.

    Args:
        x: Array of any shape.
        m: What keeps the least, shape (1, 1, ...) of as many axes as `x`.
        M: What keeps the greatest, of the same shape.
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
    """Pass an array on, and keep its greatest magnitude, of all runs.

    Args:
        x: Array of any shape.
        M: What keeps it, shape (1, 1, ...) of as many axes as `x`.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        ShapeError: If `M` has another shape.
    """
    return AbsMaxRecorder(get_current_context(), training)(x, M)


def minmax_mva_recorder(x: Variable, m: Variable, M: Variable, decay: float = 0.99, training: bool = True) -> Any:
    """Pass an array on, and keep moving averages of its least and greatest element.

    Args:
        x: Array of any shape.
        m: What keeps that of the least, shape (1, 1, ...) of as many axes as `x`.
        M: What keeps that of the greatest, of the same shape.
        decay: The share of what was, 0 to 1.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        RangeError: If `decay` is not in 0 to 1.
        ShapeError: If `m` or `M` has another shape.
    """
    return MinMaxMvaRecorder(get_current_context(), decay, training)(x, m, M)


def max_max_recorder(x: Variable, M: Variable, training: bool = True) -> Any:
    """Pass an array on, and keep its greatest element, of all runs.

    Args:
        x: Array of any shape.
        M: What keeps it, shape (1, 1, ...) of as many axes as `x`.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        ShapeError: If `M` has another shape.
    """
    return MaxMaxRecorder(get_current_context(), training)(x, M)


def max_mva_recorder(x: Variable, M: Variable, decay: float = 0.99, training: bool = True) -> Any:
    """Pass an array on, and keep a moving average of its greatest element.

    Args:
        x: Array of any shape.
        M: What keeps it, shape (1, 1, ...) of as many axes as `x`.
        decay: The share of what was, 0 to 1.
        training: Whether to record.

    Returns:
        Array equal to `x`.

    Raises:
        RangeError: If `decay` is not in 0 to 1.
        ShapeError: If `M` has another shape.
    """
    return MaxMvaRecorder(get_current_context(), decay, training)(x, M)
