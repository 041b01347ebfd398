"""Ranges as parameters, and the scales that they make."""

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
"""What a range is at least, so that no scale is 0."""
LEVELS = 255
"""Steps between the least and the greatest number of eight bits."""
ROUNDINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]] | None] = {
    "CEIL": np.ceil,
    "ROUND": np.round,
    "FLOOR": np.floor,
    "NOTROUND": None,
}
"""How the exponent of two of a scale is rounded."""


class _Callback:
    """Records with parameters of the current scope, and makes scales of them."""

    RECORD: ClassVar[Callable[..., Any]]
    SYMMETRIC: ClassVar[bool] = True

    def name(self) -> str:
        """The type of the function that records."""
        return type(self).__name__.removesuffix("Callback")

    def __call__(self, x: Variable, axes: Sequence[int] = (1,), training: bool = True, name: str = "") -> Any:
        """Record an array with the parameters `M-name` and, where the least is kept too, `m-name`.

        Args:
            x: The array.
            axes: Not used.
            training: Whether to record.
            name: How the parameters are called.

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
        """The parameters `scale-name` and `zeropoint-name`, made of what was recorded unless they are there.

        Args:
            x: An array of as many axes.
            axes: Not used.
            narrow_range: Whether the least of eight bits is -127 instead of -128.
            round_method: How the scale becomes a power of two: `CEIL`, `ROUND`, `FLOOR`, or `NOTROUND` if it need not.
            name: As it was recorded.

        Returns:
            The scale and the zero point, which is 0; None and None if nothing was recorded.

        Raises:
            ArgumentError: If there is no such rounding.
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
    """Scales by the least and the greatest element of all batches."""

    RECORD, SYMMETRIC = minmax_minmax_recorder, False


class AbsMaxRecorderCallback(_Callback):
    """Scales by the greatest magnitude of all batches."""

    RECORD = abs_max_recorder


class MinMaxMvaRecorderCallback(_Callback):
    """Scales by moving averages of the least and the greatest element."""

    RECORD, SYMMETRIC = minmax_mva_recorder, False


class MaxMaxRecorderCallback(_Callback):
    """Scales by the greatest element of all batches."""

    RECORD = max_max_recorder


class MaxMvaRecorderCallback(_Callback):
    """Scales by the moving average of the greatest element."""

    RECORD = max_mva_recorder
