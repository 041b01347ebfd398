"""Functions of a network file as callable objects, without their network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor.compat.nnabla.function import BoundFunction
from kinnor.nnp import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import Variable

__all__: list[str] = []


class Loaded(BoundFunction):
    """A function with the arguments of a `Function` message.

    Args:
        ctx: A context, without effect.
        message: A `Function` of NNabla's messages.
    """

    names = ()

    def __init__(self, ctx: Any, message: Any) -> None:
        super().__init__(ctx)
        self.name, self.args = message.type, messages.read(message)

    def __call__(self, *inputs: Any, n_outputs: int = -1, auto_forward: bool = False, outputs: Any = None) -> Any:
        """Call the function with the inputs.

        Args:
            *inputs: The inputs.
            n_outputs: Number of outputs, for functions with a variable number.
            auto_forward: Without effect.
            outputs: Without effect.

        Returns:
            The output, or a tuple of them.
        """
        made = self._call(inputs, n_outputs)
        return made if len(made) > 1 else made[0]

    def _call(self, inputs: Sequence[Variable], n_outputs: int) -> tuple[Variable, ...]:
        """Call the function. Returns its outputs as a tuple."""
        return messages.call(self.name, inputs, self.args, n_outputs)


def _create_function_instance(ctx: Any, f: Any) -> Loaded:
    """The function described by a message.

    Args:
        ctx: A context, without effect.
        f: A `Function` of NNabla's messages.
    """
    return Loaded(ctx, f)
