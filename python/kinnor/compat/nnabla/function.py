"""Functions as objects: constructed with arguments, then called with inputs or run step by step by the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import GraphError, _core
from kinnor import functions as F
from kinnor._suggest import absence
from kinnor.function import Function, PythonFunction
from kinnor.modes import auto_forward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import Variable

__all__ = ["Function", "PythonFunction"]


class BoundFunction:
    """A function of one type with its arguments, to be called on inputs.

    Args:
        ctx: Without effect: a call uses the current context.
        *args: The arguments of the function, in order.
        **kwargs: The arguments of the function by name.

    Attributes:
        name: The type name of the function.
    """

    name: str
    made_by: str
    """The name of the function in `kinnor.functions`."""
    names: Sequence[str]
    """The names of its arguments after the inputs, in order."""

    def __init__(self, ctx: Any = None, *args: Any, **kwargs: Any) -> None:
        self.ctx, self.args = ctx, {**dict(zip(self.names, args, strict=False)), **kwargs}
        self._function: Function | None = None

    def __call__(self, *inputs: Any, n_outputs: int = -1, auto_forward: bool = False, outputs: Any = None) -> Any:
        """Call the function of `kinnor.functions` with the inputs.

        Args:
            *inputs: The inputs.
            n_outputs: Without effect.
            auto_forward: Without effect.
            outputs: Arrays to write to.

        Returns:
            The output, or a tuple of them.
        """
        given = {} if outputs is None else {"outputs": outputs}
        return getattr(F, self.made_by)(*inputs, **self.args, **given)

    def setup(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Set the shapes of the outputs for these inputs, without building a graph.

        Args:
            inputs: The inputs.
            outputs: The outputs, which are leaves.

        Raises:
            GraphError: If Kinnor builds this function from several, or if it has fewer outputs.
            Error: If the function rejects the inputs.
        """
        with auto_forward(False):
            found = self._call([held.get_unlinked_variable(need_grad=held.need_grad) for held in inputs], len(outputs))
        function = found[0].parent
        if function is None or function.name != self.name or len(found) < len(outputs):
            raise GraphError(
                f"{self.name}.setup: expected one function with {len(outputs)} outputs, got {function} with "
                f"{len(found)}: call the function instead"
            )
        for output, made in zip(outputs, found, strict=False):
            output.reset_shape(made.shape, True)
        self._function = function

    def forward(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
        """Compute the outputs, without a graph.

        Args:
            inputs: The inputs, with the shapes given to `setup`.
            outputs: The outputs.

        Raises:
            GraphError: If `setup` has not run.
            Error: If the function fails.
        """
        self._ready("forward").forward(inputs, outputs)

    def backward(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], accum: Sequence[bool] | None = None
    ) -> None:
        """Compute the gradients of those inputs that need one, without a graph.

        Args:
            inputs: The inputs of `forward`.
            outputs: The outputs of `forward`, with their gradients.
            accum: For each input, whether to add to its gradient instead of overwriting it; by default False.

        Raises:
            GraphError: If `setup` has not run.
            Error: If the function has no gradient.
        """
        added = [False] * len(inputs) if accum is None else list(accum)[: len(inputs)]
        self._ready("backward").backward(inputs, outputs, added)

    def _call(self, inputs: Sequence[Variable], n_outputs: int) -> tuple[Variable, ...]:
        """Call the function. Returns its outputs as a tuple."""
        made = getattr(F, self.made_by)(*inputs, **self.args)
        return tuple(made) if isinstance(made, (list, tuple)) else (made,)

    def _ready(self, what: str) -> Function:
        """The function that `setup` has created. Raises GraphError if it has not run."""
        if self._function is None:
            raise GraphError(f"{self.name}.{what}: expected `setup` to have run, got a function that is new")
        return self._function


_FUNCTIONS = {row[1]: (row[0], [arg[0] for arg in row[3]]) for row in _core.declarations()}
"""The name in `kinnor.functions` and the names of the arguments of each function, by type name."""


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(absence(f"nnabla.function.{name}", [*__all__, *_FUNCTIONS]))
    function, names = _FUNCTIONS[name]
    made = type(
        name, (BoundFunction,), {"name": name, "made_by": function, "names": names, "__doc__": BoundFunction.__doc__}
    )
    globals()[name] = made
    return made
