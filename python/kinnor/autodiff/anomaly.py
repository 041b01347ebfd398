"""`detect_anomaly`: finds the function that first computes NaN or infinity, and the line of code that built it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..modes import Scope

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["detect_anomaly"]

PACKAGE = str(Path(__file__).parent.parent)
"""The folder of Kinnor's Python files, whose frames are left out."""


class detect_anomaly(Scope):
    """Makes forward and backward runs raise an error at the first NaN or infinity: a context manager and a decorator.

    It applies to this thread. Runs get slower, because all values are checked. Functions that are built in the block
    record the line of the program that built them, for the error.

    Args:
        mode: False switches it off.

    Raises:
        RuntimeError: In the block, if a value is not finite.

        >>> import numpy as np
        >>> import kinnor as nn
        >>> from kinnor import autodiff
        >>> with nn.auto_forward(), autodiff.detect_anomaly():
        ...     x = nn.Variable.from_numpy_array(np.zeros(2), need_grad=True)
        ...     y = nn.functions.sum(x ** 0.5)
        ...     autodiff.backward(y)
        Traceback (most recent call last):
        kinnor.GraphError: backward: expected finite numbers, got Inf as the gradient of input 0 of pow_scalar, ...
    """

    def __init__(self, mode: bool = True) -> None:
        super().__init__("anomaly", mode)


def source_line() -> str | None:
    """File, line and function of the innermost call outside of this library."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame and f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
