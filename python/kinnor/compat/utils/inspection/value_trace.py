"""Finds the origin of NaN and infinity."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import Error
from .base import FunctionHookCallbackBase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...._core import Function

__all__ = ["NanInfError", "NanInfTracer"]


class NanInfError(Error, ValueError):
    """An array contains NaN or infinity."""


class NanInfTracer(FunctionHookCallbackBase):
    """Finds the first function of a run whose outputs or gradients contain NaN or infinity.

    Args:
        trace_nan: Whether to look for NaN.
        trace_inf: Whether to look for infinity.
        need_details: Whether the error contains shapes and arguments.

    Examples:
        >>> import kinnor as nn
        >>> x = nn.Variable.from_numpy_array(np.array([0.0, 1.0], np.float32))
        >>> y = nn.functions.log(x) + 1
        >>> tracer = NanInfTracer()
        >>> with tracer.trace():
        ...     y.forward(function_post_hook=tracer.forward_post_hook)
        Traceback (most recent call last):
        ...
        kinnor.compat.utils.inspection.value_trace.NanInfError: forward: expected finite values, got inf in output 0 of
        Log (rank 1), which has inputs of shapes [(2,)], outputs of shapes [(2,)] and arguments {}
    """

    def __init__(self, trace_nan: bool = True, trace_inf: bool = True, need_details: bool = True) -> None:
        self.trace_nan, self.trace_inf, self.need_details = trace_nan, trace_inf, need_details
        self._found: list[str] = []

    def pre_hook(self, *args: Any, **kwargs: Any) -> None:
        """Without effect.

        Args:
            *args: Anything.
            **kwargs: Anything.
        """

    def post_hook(self, *args: Any, **kwargs: Any) -> None:
        """The hook for a forward run; see `forward_post_hook`.

        Args:
            *args: The function.
            **kwargs: Not accepted.
        """
        self.forward_post_hook(*args, **kwargs)

    def forward_post_hook(self, f: Function) -> None:
        """The hook for a forward run: checks the outputs of a function.

        Args:
            f: The function.
        """
        for i, output in enumerate(f.outputs):
            self._check("forward", f, f"output {i}", output.data)

    def backward_post_hook(self, f: Function) -> None:
        """The hook for a backward run: checks the gradients of a function's inputs.

        Args:
            f: The function.
        """
        for i, x in enumerate(f.inputs):
            if x.need_grad:
                self._check("backward", f, f"the gradient of input {i}", x.grad)

    def _check(self, run: str, f: Function, which: str, array: Any) -> None:
        """Check an array, and store the error if it contains NaN or infinity."""
        values = array.data
        if values.dtype.kind != "f" and values.dtype.name != "bfloat16":
            return
        kinds = [("nan", self.trace_nan, np.isnan), ("inf", self.trace_inf, np.isinf)]
        found = [name for name, counts, test in kinds if counts and test(values).any()]
        if not found:
            return
        text = (
            f"{run}: expected finite values, got {' and '.join(found)} in {which} of {f.info.type_name} (rank {f.rank})"
        )
        if self.need_details:
            shapes = [[x.shape for x in side] for side in (f.inputs, f.outputs)]
            text += (
                f", which has inputs of shapes {shapes[0]}, outputs of shapes {shapes[1]} and arguments {f.info.args}"
            )
        self._found.append(text)

    @contextmanager
    def trace(self) -> Iterator[None]:
        """Call `check` at the end of a `with` block.

        Raises:
            NanInfError: If an array contained NaN or infinity.
        """
        self._found.clear()
        yield
        self.check()

    def check(self) -> None:
        """Raise an error if NaN or infinity was found, and reset.

        Raises:
            NanInfError: If an array contained NaN or infinity.
        """
        if self._found:
            first, *_ = self._found
            self._found.clear()
            raise NanInfError(first)
