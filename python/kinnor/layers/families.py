"""Layers that differ from a base by their number of axes or by a function, a row each. `derived.py` has the classes.

`make stubs` writes `derived.pyi` from these rows.
"""

from __future__ import annotations

import re
from inspect import cleandoc, signature
from typing import TYPE_CHECKING, Any

from .. import functions as F
from ..core import Module
from .activations import FunctionLayer
from .convolutions import Conv, ConvTranspose
from .normalizations import BatchNormOfAxes
from .shapes import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LAYERS", "Row", "made"]


class Row:
    """A layer. It is the docstring of its class, too, whose text it makes when that is read.

    Args:
        name: The name of the class.
        base: Its base.
        summary: The first line of its docstring.
        example: The arguments of the layer, the shape of an input, and the shape of the output.
        attributes: Further attributes of the class.
    """

    def __init__(
        self, name: str, base: type[Module], summary: str, example: tuple[str, str, str], **attributes: Any
    ) -> None:
        self.name, self.base, self.summary, self.example, self.attributes = name, base, summary, example, attributes

    def __get__(self, instance: object, owner: object = None) -> str:
        """Returns the docstring, which is built when it is read."""
        return self.doc()

    def doc(self) -> str:
        """Returns its docstring."""
        arguments, given, result = self.example
        example = f"    >>> L.{self.name}({arguments})(nn.Variable({given})).shape\n    {result}"
        parts = [self.summary, *arguments_of(self.base)]
        return "\n\n".join([*parts, f"Examples:\n    >>> import kinnor as nn, kinnor.layers as L\n{example}"]) + "\n"


def arguments_of(base: type[Module]) -> list[str]:
    """The section `Args` for the constructor of a class, from its docstring and its bases; none if empty."""
    texts: dict[str, str] = {}
    for each in reversed(base.__mro__[: base.__mro__.index(Module)]):
        found = re.search(r"\nArgs:\n((?: +.*\n)+)", cleandoc(each.__doc__ or "") + "\n")
        texts |= dict(re.findall(r"^    (\w+): (.*(?:\n {5}.*)*)", found[1], re.M)) if found else {}
    taken = [f"    {name}: {texts[name]}" for name in signature(base).parameters if name in texts]
    return ["\n".join(["Args:", *taken])] if taken else []


def made(row: Row, module: str) -> type[Module]:
    """Returns the class of a layer.

    Args:
        row: The layer.
        module: The name of the module that the class is for.
    """
    return type(row.name, (row.base,), {"__doc__": row, "__module__": module, **row.attributes})


AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}
"""Names of the spatial axes, by their number."""


def _spatial(
    name: str,
    base: type[Module],
    summary: str,
    arguments: str,
    channels: int,
    sizes: tuple[int, int],
    **attributes: Any,
) -> list[Row]:
    """Returns the layers for one to three spatial axes.

    Args:
        name: The first part of their names.
        base: Their base.
        summary: Their summary, in which `{spatial}` is the number of axes, and `{axes}` the names of the axes.
        arguments: The arguments of the layer in the example, whose input has 3 channels.
        channels: The channels of its output.
        sizes: The size of an axis of its input, and of its output.
        attributes: Further attributes of the classes.
    """
    found = []
    for n, axes in AXES.items():
        text = summary.format(spatial=f"{n} spatial {'axis' if n == 1 else 'axes'}", axes=axes)
        given, result = ((1, maps, *[size] * n) for maps, size in zip((3, channels), sizes, strict=True))
        example = (arguments, str(given), str(result))
        found.append(Row(f"{name}{n}d", base, text, example, N_AXES=n, **attributes))
    return found


def _activation(name: str, function: Callable[..., Any], summary: str) -> Row:
    """Returns the layer of a function without further arguments."""
    return Row(name, FunctionLayer, summary, ("", "(2, 3)", "(2, 3)"), FUNCTION=staticmethod(function))


OVER = "over {spatial}: inputs of shape (n, channels, {axes})."
"""The rest of the summary of convolutions."""
POOLED = "over windows of {spatial}. The function is"
"""The rest of the summary of poolings."""
MAX, AVERAGE = {"FUNCTION": staticmethod(F.max_pooling)}, {"FUNCTION": staticmethod(F.average_pooling)}
NORMALIZED = "Batch normalization of inputs of shape (n, channels, {axes}) or (n, channels)."
"""The summary of batch normalizations."""

LAYERS = (
    *_spatial("Conv", Conv, f"Convolution {OVER}", "3, 4, 3", 4, (8, 6)),
    *_spatial("ConvTranspose", ConvTranspose, f"Transposed convolution {OVER}", "3, 4, 3", 4, (8, 10)),
    *_spatial("MaxPool", Pool, f"Maximum {POOLED} `max_pooling`.", "2", 3, (8, 4), **MAX),
    *_spatial("AvgPool", Pool, f"Average {POOLED} `average_pooling`.", "2", 3, (8, 4), **AVERAGE),
    *_spatial("BatchNorm", BatchNormOfAxes, NORMALIZED, "3", 3, (4, 4)),
    _activation("GELU", F.gelu, "Gaussian error linear unit, in its approximation by `tanh`."),
    _activation("HardSigmoid", F.hard_sigmoid, "Sigmoid made of three lines: `min(max(0.2 x + 0.5, 0), 1)`."),
    _activation("HardSwish", F.hard_swish, "Swish with a gate made of three lines: `x min(max(x + 3, 0), 6) / 6`."),
    _activation("Mish", F.mish, "Mish: `x tanh(log(1 + exp(x)))`."),
    _activation("ReLU", F.relu, "Rectified linear unit: `max(x, 0)`."),
    _activation("ReLU6", F.relu6, "Rectified linear unit that stops at 6: `min(max(x, 0), 6)`."),
    _activation("SELU", F.selu, "Scaled exponential linear unit."),
    _activation("Sigmoid", F.sigmoid, "Logistic function: `1 / (1 + exp(-x))`."),
    _activation("Swish", F.swish, "Swish, also called SiLU: `x sigmoid(x)`."),
    _activation("Tanh", F.tanh, "Hyperbolic tangent."),
)
"""The layers."""
