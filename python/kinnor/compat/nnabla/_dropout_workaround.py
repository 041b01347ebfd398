"""The mask of the last run of a dropout, and the gradient of Dropout that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import GraphError, Variable
from kinnor.function import PythonFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor._core import FunctionVariable
    from kinnor.function import Function


def dropout_on(x: Variable | None) -> Function:
    """The first Dropout function that has a variable as input.

    Raises:
        GraphError: If there is none.
    """
    for function in x.function_references if x is not None else ():
        if function.info.type_name == "Dropout":
            return function
    raise GraphError("dropout_on: expected a variable with a dropout on it, got one without")


def factors(dropout: Function, shape: tuple[int, ...]) -> Variable:
    """The factor of each element in the last run of a dropout: 0 if dropped, else `1 / (1 - p)`."""
    ones, y = Variable(shape), Variable(shape)
    ones.d = 1.0
    dropout.recompute([ones], [y])
    return y


def _get_dropout_mask(dropout_input: Variable) -> Variable:
    """The mask of the last run of the dropout on a variable: 1 for elements that were kept, else 0."""
    mask = factors(dropout_on(dropout_input), dropout_input.shape)
    mask.d = mask.d != 0
    return mask


class DropoutFactors(PythonFunction):
    """Outputs the factors of the dropout's last run. It has no inputs, so that its forward run does not rerun it."""

    def __init__(self, dropout: Function, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.dropout, self.shape = dropout, shape

    def min_outputs(self) -> int:
        """The number of outputs: one."""
        return 1

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Set the output to the shape of the dropout's input."""
        outputs[0].reset_shape(self.shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Copy the factors to the output."""
        outputs[0].d = factors(self.dropout, self.shape).d


def dropout_backward(
    grad_inputs: Sequence[Variable],
    inputs: Sequence[Variable | None],
    input_shapes: Sequence[tuple[int, ...] | None],
    outputs: Sequence[Variable | None],
    output_shapes: Sequence[tuple[int, ...] | None],
    p: float = 0.5,
    seed: int = -1,
) -> Any:
    """Gradient of Dropout by its input. It uses the mask of the last run of the dropout on that input.

    Raises:
        GraphError: If there is no dropout on the input.
    """
    return grad_inputs[0] * DropoutFactors(dropout_on(inputs[0]), grad_inputs[0].shape)()
