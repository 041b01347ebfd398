"""Prints graphs as text, function by function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....parameter import get_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...._core import Function, Variable

__all__ = ["PrettyPrinter", "pprint"]

STATISTICS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "Med": np.median,
    "Ave": np.mean,
    "Std": np.std,
    "Min": np.min,
    "Max": np.max,
}
"""Statistics of an array, by the label that is printed."""


class PrettyPrinter:
    """Prints the functions that it visits: `y.visit(PrettyPrinter())`.

    The list `functions` has a dictionary for each function: its `name`, `inputs` and `outputs`. These are variables
    with `hidden`, otherwise shapes.

    Args:
        summary: Whether to print median, mean, standard deviation, minimum and maximum of values and gradients.
        hidden: Whether to store the variables.
    """

    def __init__(self, summary: bool = False, hidden: bool = False) -> None:
        self.functions: list[dict[str, Any]] = []
        self._summary, self._hidden = summary, hidden
        self._names = {variable: name for name, variable in get_parameters(grad_only=False).items()}

    def get_scope_name(self, x: Function) -> str:
        """The scope of a function's parameters, followed by `/`; empty without parameters.

        Args:
            x: The function.
        """
        name = next((self._names[v] for v in x.inputs if v in self._names), "")
        return name[: name.rfind("/") + 1]

    def __call__(self, f: Function) -> None:
        """Print a function.

        Args:
            f: The function.
        """
        kind = f.info.type_name
        name = f"{self.get_scope_name(f)}{kind}({f.name})"
        kept: list[Sequence[Any]] = [f.inputs, f.outputs]
        if not self._hidden:
            kept = [[v.shape for v in side] for side in kept]
        self.functions.append({"name": name, "inputs": kept[0], "outputs": kept[1]})
        lines = [
            name,
            f"\tDepth = {f.rank}",
            f"\tArgs: {[f'{key}={value}' for key, value in f.info.args.items()]}",
            f"\tInputs: {[v.shape for v in f.inputs]}",
            f"\tOutputs: {[v.shape for v in f.outputs]}",
            f"\tBackward Inputs: {[v.need_grad for v in f.inputs]}",
        ]
        if self._summary:
            for side, variables in (("Input", f.inputs), ("Output", f.outputs)):
                lines += _statistics(f"{side} Data", [v.d for v in variables])
            for side, variables in (("Input", f.inputs), ("Output", f.outputs)):
                lines += _statistics(f"{side} Grads", [v.g for v in variables if v.need_grad])
        print("\n".join(lines))


def _statistics(title: str, arrays: Sequence[NDArray[Any]]) -> list[str]:
    """Lines with the statistics of some arrays."""
    rows = [f"\t{title}:"]
    for name, statistic in STATISTICS.items():
        rows.append(f"\t\t{name}: {[float(statistic(a)) if a.size else None for a in arrays]}")
    return rows


def pprint(
    v: Variable,
    forward: bool = False,
    backward: bool = False,
    summary: bool = False,
    hidden: bool = False,
    printer: bool = False,
) -> PrettyPrinter | None:
    """Print the functions that compute a variable, with their arguments and shapes.

    Args:
        v: The variable.
        forward: Whether to run forward first.
        backward: Whether to run backward first.
        summary: Whether to print median, mean, standard deviation, minimum and maximum of values and gradients.
        hidden: Whether the printer stores the variables.
        printer: Whether to return the printer.

    Returns:
        The printer, or None.

    Examples:
        >>> import kinnor as nn
        >>> _ = pprint(nn.functions.relu(nn.Variable((2, 3), need_grad=True)))
        ReLU(ReLU)
            Depth = 0
            Args: ['inplace=False']
            Inputs: [(2, 3)]
            Outputs: [(2, 3)]
            Backward Inputs: [True]
    """
    made = PrettyPrinter(bool(summary), bool(hidden))
    returned = made if printer else None
    runs = [run for run, wanted in ((v.forward, forward), (v.backward, backward)) if wanted]
    for run in runs:
        run()
    v.visit(made)
    return returned
