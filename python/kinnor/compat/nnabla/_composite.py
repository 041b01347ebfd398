"""Functions that are one node of the graph, as in NNabla, and run several of Kinnor's functions inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import Variable, _core
from kinnor import functions as ours
from kinnor.function import PythonFunction
from kinnor.modes import auto_forward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import NdArray
    from kinnor._core import FunctionVariable

__all__ = ["Composite", "Einsum"]


class Composite(PythonFunction):
    """A function that runs an inner graph of other functions.

    A subclass defines `compose` and `min_outputs`.
    """

    def __init__(self, ctx: Any = None) -> None:
        super().__init__(ctx)
        self.leaves: list[Variable] = []
        self.results: list[Variable] = []
        self.end: Variable | None = None
        self.has_seen: list[tuple[NdArray, int]] = []

    def compose(self, *inputs: Variable) -> Sequence[Variable]:
        """Build the inner graph and return its outputs.

        Args:
            *inputs: The inputs of the inner graph.
        """
        raise NotImplementedError

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Build the inner graph and take the output shapes from it."""
        with auto_forward(False):
            self.leaves = [Variable(x.shape, need_grad=True) for x in inputs]
            self.results = list(self.compose(*self.leaves))
            self.end = ours.sink(*self.results, one_input_grad=False)
        self.has_seen = []
        for result, output in zip(self.results, outputs, strict=True):
            output.reset_shape(result.shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Run the inner graph on the arrays of the inputs."""
        self._forward(inputs)
        for result, output in zip(self.results, outputs, strict=True):
            output.data.copy_from(result.data)

    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Run the inner graph backward from the gradients of the outputs."""
        for leaf, wanted in zip(self.leaves, propagate_down, strict=True):
            leaf.need_grad = wanted
            leaf.grad.zero()
        if self.has_seen != seen(inputs):
            self._forward(inputs)
        for result, output in zip(self.results, outputs, strict=True):
            result.grad.copy_from(output.grad)
        if self.end is not None:
            self.end.backward()
        for leaf, x, wanted, adds in zip(self.leaves, inputs, propagate_down, accum, strict=True):
            if wanted:
                x.grad.copy_from(leaf.grad + x.grad if adds else leaf.grad)

    def gradient_impl(
        self,
        inputs: list[Variable],
        outputs: list[Variable],
        grad_outputs: list[Variable],
        propagate_down: list[bool],
    ) -> Sequence[Variable | None]:
        """Build the gradients as a graph of the inner functions' gradients."""
        wanted = [x for x, is_wanted in zip(inputs, propagate_down, strict=True) if is_wanted]
        found = iter(_core.grad_graph(list(self.compose(*inputs)), wanted, grad_outputs))
        return [next(found) if is_wanted else None for is_wanted in propagate_down]

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """True: gradients may read the inputs."""
        return True

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: gradients do not read the outputs."""
        return False

    def _forward(self, inputs: list[FunctionVariable]) -> None:
        """Run the inner graph on the arrays of the inputs."""
        for leaf, x in zip(self.leaves, inputs, strict=True):
            leaf.data = x.data
        if self.end is not None:
            self.end.forward()
        self.has_seen = seen(inputs)


def seen(inputs: list[FunctionVariable]) -> list[tuple[NdArray, int]]:
    """The arrays of inputs with their versions, to detect later writes."""
    return [(x.data, x.data.modification_count) for x in inputs]


class Einsum(Composite):
    """Einstein summation, as `kinnor.functions.einsum`, in one node.

    Args:
        ctx: A context, without effect.
        equation: As in `kinnor.functions.einsum`.
    """

    def __init__(self, ctx: Any, equation: str) -> None:
        super().__init__(ctx)
        self.args = {"equation": equation}

    def min_outputs(self) -> int:
        """The number of outputs: one."""
        return 1

    def compose(self, *inputs: Variable) -> list[Variable]:
        """Build the graph of `einsum`."""
        return [ours.einsum(*inputs, **self.args)]
