"""Facts about layers for modifiers: inputs by name, weight axes, and new parameters in the scope of the old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from ..context import numbered_context
from ..parameter import get_parameter_or_create, parameter_scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from .._core import Function, Variable

__all__ = [
    "PRODUCTS",
    "Normalization",
    "above",
    "context_of",
    "is_a",
    "normalization",
    "only_reader",
    "registered",
    "scaled",
]

PRODUCTS = ("Affine", "Convolution", "Deconvolution")
"""Types of layers that a batch normalization can be folded into."""


class Normalization(NamedTuple):
    """A batch normalization with running statistics, as `y = scale * x + shift` for each channel."""

    scale: NDArray[Any]
    shift: NDArray[Any]

    def repeated(self, times: int) -> Normalization:
        """Scale and shift for the outputs of a layer with `times` output maps for each channel."""
        return Normalization(np.repeat(self.scale, times), np.repeat(self.shift, times))


def is_a(f: Function | None, *types: str) -> TypeGuard[Function]:
    """True if `f` is a function of one of these types."""
    return f is not None and f.name in types


def context_of(f: Function) -> numbered_context:
    """Returns a context manager for a block that builds functions in the context of `f`."""
    return numbered_context(f.context_number)


def above(outputs: Iterable[Variable]) -> list[Function]:
    """The functions that compute these variables, in the order of a forward run, each once."""
    found: dict[Function, None] = {}
    for output in outputs:
        output.visit(found.setdefault)
    return list(found)


def only_reader(f: Function) -> Function | None:
    """The function that reads the output of `f`, if it is the only one, else None."""
    readers = f.outputs[0].function_references
    return readers[0] if len(readers) == 1 else None


def inputs_by_name(f: Function, inputs: Sequence[Variable]) -> dict[str, Any]:
    """The inputs of a batch normalization by name. Shift and scale are optional."""
    args = f.args
    names = ["x", *(() if args["no_bias"] else ("beta",)), *(() if args["no_scale"] else ("gamma",))]
    found: dict[str, Any] = {"beta": None, "gamma": None}
    found.update(zip([*names, "mean", "variance"], inputs, strict=False))
    return found


def normalization(f: Function) -> Normalization:
    """Scale and shift of a batch normalization, from its running statistics."""
    given = inputs_by_name(f, f.inputs)
    beta, gamma, mean, variance = (_values(given[name]) for name in ("beta", "gamma", "mean", "variance"))
    scale = (1 if gamma is None else gamma) / np.sqrt(variance + f.args["eps"])
    return Normalization(scale, (0 if beta is None else beta) - mean * scale)


def _values(v: Variable | None) -> Any:
    """The values of a variable as a float64 vector, or None."""
    return None if v is None else np.array(v.d, np.float64).ravel()


def scaled(f: Function, by: NDArray[Any], outputs: bool) -> NDArray[np.float32]:
    """The weight of a layer multiplied by a factor for each output map, or for each input map."""
    kind, args = f.name, f.args
    w: NDArray[Any] = f.inputs[1].d
    if kind == "Affine":
        if outputs:
            rows = _products(w.reshape(w.shape[0], -1), by)
        else:
            rows = _products(w.reshape(by.size, w.shape[0] // by.size, -1), by[:, None, None])
        return rows.reshape(w.shape)
    last, group = args["channel_last"], args["group"]
    if last:
        w = np.moveaxis(w, -1, 1)
    # The first axis of the weight has all maps of one side, the second the maps of the other side in one group.
    first = outputs == (kind == "Convolution")
    parts = w.reshape(group, w.shape[0] // group, w.shape[1], -1)
    found = _products(parts, by.reshape((group, -1, 1, 1) if first else (group, 1, -1, 1))).reshape(w.shape)
    return np.moveaxis(found, 1, -1) if last else found


def _products(w: NDArray[Any], by: NDArray[Any]) -> NDArray[np.float32]:
    """Products in float64, rounded to float32, without an array of float64."""
    found = np.empty(np.broadcast_shapes(w.shape, by.shape), np.float32)
    np.multiply(w, by, out=found, dtype=np.float64, casting="same_kind")
    return found


def registered(scope: str, name: str, values: NDArray[Any], like: Variable | None = None) -> Variable:
    """A new parameter with these values. It needs a gradient if `like` does."""
    need_grad = True if like is None else like.need_grad
    with parameter_scope(scope):
        made = get_parameter_or_create(name, values.shape, np.asarray(values, np.float32), need_grad)
    made.d = np.asarray(values, np.float32)
    return made
