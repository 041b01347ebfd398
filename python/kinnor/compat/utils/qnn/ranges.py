"""Recorded ranges as parameters, and the scales computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...._core import ArgumentError, CallError, Variable
from ....initializer import ConstantInitializer
from ....parameter import get_parameter, get_parameter_or_create
from .recorders import (
    abs_max_recorder,
    max_max_recorder,
    max_mva_recorder,
    minmax_minmax_recorder,
    minmax_mva_recorder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "AbsMaxRecorderCallback",
    "MaxMaxRecorderCallback",
    "MaxMvaRecorderCallback",
    "MinMaxMinMaxRecorderCallback",
    "MinMaxMvaRecorderCallback",
]

LEAST = 1e-24
"""Lower limit of a range, so that no scale is 0."""
LEVELS = 255
"""Number of steps between the smallest and the largest 8-bit value."""
ROUNDINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]] | None] = {
    "CEIL": np.ceil,
    "ROUND": np.round,
    "FLOOR": np.floor,
    "NOTROUND": None,
}
"""Rounding functions for the exponent of a power-of-two scale."""


class _Callback:
    """Records ranges in parameters of the current scope, and computes scales from them."""

    RECORD: ClassVar[Callable[..., Any]]
    """The function that records the range of a variable in parameters."""
    SYMMETRIC: ClassVar[bool] = True
    """True if only the maximum is recorded, for a range that is symmetric around zero."""

    def name(self) -> str:
        """The type of the recording function."""
        return type(self).__name__.removesuffix("Callback")

    def __call__(self, x: Variable, axes: Sequence[int] = (1,), training: bool = True, name: str = "") -> Any:
        """Record an array in the parameter `M-name`, and in `m-name` if the minimum is recorded, too.

        Args:
            x: The array.
            axes: Without effect.
            training: Whether to record.
            name: Suffix of the parameters' names.

        Returns:
            Array equal to `x`.
        """
        if not isinstance(x, Variable):
            raise CallError(f"{type(self).__name__}: expected a Variable, got {x!r}")
        shape = (1,) * x.ndim
        kept = [get_parameter_or_create(key, shape, ConstantInitializer(), False) for key in self._keys(name)]
        return type(self).RECORD(x, *kept, training=training)

    @classmethod
    def _keys(cls, name: str) -> list[str]:
        """The names of the parameters with the range."""
        return [f"M-{name}"] if cls.SYMMETRIC else [f"m-{name}", f"M-{name}"]

    @classmethod
    def get_scale_zeropoint(
        cls,
        x: Variable,
        axes: Sequence[int] = (1,),
        narrow_range: bool = False,
        round_method: str = "NOTROUND",
        name: str = "",
    ) -> tuple[Any, Any]:
        """The parameters `scale-name` and `zeropoint-name`; computed from the recorded range if they do not exist.

        Args:
            x: An array with the same number of axes.
            axes: Without effect.
            narrow_range: Whether the smallest quantized value is -127 instead of -128.
            round_method: Rounding of the scale to a power of two: `CEIL`, `ROUND`, `FLOOR`, or `NOTROUND` for none.
            name: The name used for recording.

        Returns:
            The scale and the zero point, which is 0; None and None if no range was recorded.

        Raises:
            ArgumentError: If the rounding is unknown.
        """
        if round_method not in ROUNDINGS:
            raise ArgumentError(
                f"{cls.__name__}: expected `round_method` to be one of {', '.join(ROUNDINGS)}, got {round_method!r}"
            )
        found = [get_parameter(key) for key in cls._keys(name)]
        kept = [v for v in found if v is not None]
        if len(kept) < len(found):
            return None, None
        extent = 2 * kept[0].d if cls.SYMMETRIC else kept[1].d - kept[0].d
        scale = np.maximum(extent, LEAST) / (LEVELS - narrow_range)
        rounded = ROUNDINGS[round_method]
        scale = scale if rounded is None else 2 ** rounded(np.log2(scale))
        made = get_parameter_or_create(f"scale-{name}", scale.shape, scale, False)
        zero_point = get_parameter_or_create(f"zeropoint-{name}", scale.shape, np.zeros_like(scale), False)
        return made, zero_point


class MinMaxMinMaxRecorderCallback(_Callback):
    """Computes scales from the minimum and maximum of all batches."""

    RECORD, SYMMETRIC = minmax_minmax_recorder, False


class AbsMaxRecorderCallback(_Callback):
    """Computes scales from the maximum magnitude of all batches."""

    RECORD = abs_max_recorder


class MinMaxMvaRecorderCallback(_Callback):
    """Computes scales from moving averages of minimum and maximum."""

    RECORD, SYMMETRIC = minmax_mva_recorder, False


class MaxMaxRecorderCallback(_Callback):
    """Computes scales from the maximum of all batches."""

    RECORD = max_max_recorder


class MaxMvaRecorderCallback(_Callback):
    """Computes scales from the moving average of the maximum."""

    RECORD = max_mva_recorder
