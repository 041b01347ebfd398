"""`detect_anomaly`: finds the function, and the line that built it, whose numbers are the first that are not finite."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from types import FrameType, TracebackType

__all__ = ["detect_anomaly"]

PACKAGE = str(Path(__file__).parent.parent)


class detect_anomaly(ContextDecorator):
    """Stops each run, forward or backward, at the first NaN or infinite number: a context manager and a decorator.

    It holds for this thread, and every number is looked at: runs get slower. Functions that are built within remember
    the line of the program that did, which the error names.

    Args:
        mode: False switches it off.

    Raises:
        RuntimeError: By a run within, if a number is not finite.

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
        self.mode = mode
        self.entered: list[int] = []

    def __enter__(self) -> None:
        self.entered.append(_core.enter_mode("anomaly", self.mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = _core.leave_mode(self.entered)
        if left is not None:  # A generator may be closed in another task.
            self.entered.remove(left)


def source_line() -> str | None:
    """Where the program is, outside of this library: file, line and function."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame and f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
