"""Functions of a graph that NumPy computes in each run.

Knows arrays and graphs; knows no operators.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import PythonFunction, UnsupportedError, Variable
from .values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import FunctionVariable

__all__ = ["DIFFERENTIATES", "WithoutGradient", "computed_by_arrays", "without_gradient"]

DIFFERENTIATES: ContextVar[bool] = ContextVar("differentiates", default=False)
"""True while a graph of variables is built, through which a program may differentiate."""


class WithoutGradient(PythonFunction):
    """A function without a gradient. It changes none of its inputs.

    Args:
        operator: The name of the operator.
        shapes: The shapes of the outputs.
    """

    def __init__(self, operator: str, shapes: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self._operator = operator
        self._shapes = [tuple(shape) for shape in shapes]

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self._operator

    def min_outputs(self) -> int:
        """Returns the number of outputs."""
        return len(self._shapes)

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Set the shapes of the outputs."""
        for y, shape in zip(outputs, self._shapes, strict=True):
            y.reset_shape(shape, True)

    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Refuses gradients.

        Raises:
            UnsupportedError: If one is wanted.
        """
        if any(propagate_down):
            raise UnsupportedError(f"onnx: {self._operator}: expected no gradient to be asked for, as it has none")

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """False: there is no gradient."""
        return False

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: there is no gradient."""
        return False


class _ArrayFunction(WithoutGradient):
    """A function of arrays.

    Args:
        operator: The name of the operator.
        compute: Makes the outputs of the inputs, all of them arrays.
        shapes: The shapes of the outputs.
        dtypes: The types of their elements.
    """

    def __init__(
        self,
        operator: str,
        compute: Callable[..., Sequence[Any]],
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[np.dtype[Any]],
    ) -> None:
        super().__init__(operator, shapes)
        self._compute = compute
        self._dtypes = dtypes

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Compute the outputs."""
        made = self._compute(*(x.d for x in inputs))
        for y, array, dtype in zip(outputs, made, self._dtypes, strict=True):
            y.data.cast(dtype if dtype.kind == "f" and dtype.itemsize == 4 else np.dtype(np.float64))
            y.d = array


def computed_by_arrays(
    operator: str,
    compute: Callable[..., Sequence[Any]],
    inputs: Sequence[Value],
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
) -> list[Value]:
    """Returns the outputs of a function that NumPy computes: arrays if all inputs are known, else variables.

    Args:
        operator: The name of the operator.
        compute: Makes the outputs of the inputs, all of them arrays. Integers arrive as real numbers.
        inputs: The inputs.
        shapes: The shapes of the outputs.
        dtypes: The types of their elements.
    """
    kinds = [np.dtype(dtype) for dtype in dtypes]
    if all(value.known for value in inputs):
        made = compute(*(value.static() for value in inputs))
        return [Value(np.asarray(array).astype(kind)) for array, kind in zip(made, kinds, strict=True)]
    found = _ArrayFunction(operator, compute, shapes, kinds)(*(value.variable for value in inputs))
    sources = frozenset[str]().union(*(value.sources for value in inputs))
    outputs = [found] if isinstance(found, Variable) else found
    return [Value(y, kind, sources=sources) for y, kind in zip(outputs, kinds, strict=True)]


def without_gradient(operator: str, outputs: Sequence[Variable], inputs: Sequence[Value]) -> list[Value]:
    """Returns outputs of a function that has no gradient. To differentiate through it is an error, not silently zero.

    Args:
        operator: The name of the operator.
        outputs: The outputs, which are numbers.
        inputs: The inputs of the function.
    """
    values = [Value(y, np.float32) for y in outputs]
    if not DIFFERENTIATES.get():
        return values
    shapes = [y.shape for y in outputs]
    return computed_by_arrays(
        operator, lambda *arrays: arrays[: len(shapes)], [*values, *inputs], shapes, [np.float32] * len(shapes)
    )
