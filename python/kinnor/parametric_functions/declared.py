"""Layers declared as a base, an affine transformation or a convolution, and a transform of its weight.

A declaration gives signature, docstring and parameters of both layers. Knows no particular transform: those are in
`families.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import functions as F
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import Filters, Matrix, bias, kept
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Variable
    from .arguments import Weights
    from .decorator import ParameterDescription

__all__ = ["AFFINE", "CONVOLUTION", "INITIALIZER", "Argument", "Combined", "Layer", "Rounded", "made"]


class Argument(NamedTuple):
    """An argument of a layer. Its default is Python source; None if a call must give the argument."""

    name: str
    """Its name."""
    kind: str
    """Its annotation, as Python source."""
    default: str | None
    """Its default as Python source, or None if a call must give the argument."""
    meaning: str
    """Its line in the docstring."""

    def text(self) -> str:
        """Returns the argument as written in a signature."""
        return f"{self.name}: {self.kind}" + ("" if self.default is None else f" = {self.default}")

    def of(self, letter: str, values: str, bound: int) -> Argument:
        """Returns the argument for the weight or the bias.

        Fills in the placeholders of name and meaning.

        Args:
            letter: Replaces `{x}`: `w` or `b`.
            values: Replaces `{what}`: the values in words, such as `weights`.
            bound: Replaces `{bound}`.
        """
        filled = {"x": letter, "what": values, "bound": bound}
        return self._replace(name=self.name.format(**filled), meaning=self.meaning.format(**filled))


SIZES = "int | Sequence[int] | None"
"""The annotation of arguments that are sizes, as Python source."""
INITIALIZER = "Initializer | None"
"""The annotation of arguments that are initial values, as Python source."""
W_INIT = Argument("w_init", INITIALIZER, "None", "Initial weight; by default uniform, `calc_uniform_lim_glorot`.")
"""The initial values of the weight."""
B_INIT = Argument("b_init", INITIALIZER, "None", "Initial bias; by default zeros.")
"""The initial values of the bias."""
BASE_AXIS = Argument("base_axis", "int", "1", "Axis of the channels; those before it are the batch.")
"""The axis of the channels, of convolutions."""
CHANNEL_LAST = Argument("channel_last", "bool", "False", "Whether the channels are the last axis.")
"""The order of the axes, of convolutions."""
SHARED = (
    Argument("fix_parameters", "bool", "False", "Whether to use the parameters without a gradient."),
    Argument("rng", "RandomState | None", "None", "Generator for the default initial values."),
    Argument("with_bias", "bool", "True", "Whether to add a bias."),
)
"""Arguments of all layers."""
NAME = Argument("name", "str | None", "None", "Name of a scope around the parameters.")
"""The argument with the name of the scope."""


@dataclass(frozen=True)
class Base:
    """The arguments and texts of all layers with one kind of function."""

    name: str
    """The name of the function; a layer's name ends with it."""
    scope: str
    """The last part of the names of the layers' parameter scopes."""
    title: str
    """Start of the docstring: the name of the computation."""
    product: str
    """The sign between input and weight in formulas of the docstring."""
    head: tuple[Argument, ...]
    """The arguments before the arguments of the transform."""
    tail: tuple[Argument, ...]
    """The arguments after the initial values."""
    weight: str
    """The shape of the weight, for the docstring."""
    maps: str
    """The shape of the bias, for the docstring."""
    returns: str
    """The section on the result in the docstring."""
    example: tuple[str, str, str]
    """The shape of an input, the arguments after it, and the shape of the output."""


AFFINE = Base(
    name="affine",
    scope="affine",
    title="Affine transformation",
    product=" ",
    head=(
        Argument(
            "inp", "Variable", None, "Input, shape (*batch, *inputs); the axes from `base_axis` are taken as one."
        ),
        Argument("n_outmaps", "int | Sequence[int]", None, "Number of outputs, or their shape."),
        Argument("base_axis", "int", "1", "First axis of the inputs."),
    ),
    tail=(),
    weight="(inputs, *n_outmaps)",
    maps="n_outmaps",
    returns="Output, shape (*batch, *n_outmaps).",
    example=("(2, 3)", "4", "(2, 4)"),
)
"""The affine transformation."""
CONVOLUTION = Base(
    name="convolution",
    scope="conv",
    title="Convolution",
    product=" * ",
    head=(
        Argument("inp", "Variable", None, "Input, shape (*batch, inmaps, *spatial)."),
        Argument("outmaps", "int", None, "Number of filters."),
        Argument("kernel", "int | Sequence[int]", None, "Shape of the filters, as (3, 3); a number for all axes."),
        Argument("pad", SIZES, "None", "Zeros to add at both ends of each spatial axis; by default none."),
        Argument("stride", SIZES, "None", "Distance of neighbouring outputs; by default 1."),
        Argument("dilation", SIZES, "None", "Distance of neighbouring taps; by default 1."),
        Argument("group", "int", "1", "Number of groups of channels that are convolved apart."),
    ),
    tail=(BASE_AXIS,),
    weight="(outmaps, inmaps, *kernel)",
    maps="(outmaps,)",
    returns="Output, shape (*batch, outmaps, *spatial of the output).",
    example=("(2, 3, 8, 8)", "4, (3, 3)", "(2, 4, 6, 6)"),
)
"""The convolution."""


@dataclass(frozen=True)
class Transform:
    """A transform of the weight: a family of layers.

    Attributes:
        op: The family's name, the first part of the names of its layers.
        scope: The first part of the names of their parameter scopes.
        about: The summary after the title of the base, and the paragraph after the summary.
        source: The paper; empty for none.
    """

    op: str
    scope: str
    about: tuple[str, str]
    source: str

    def head(self, base: Base) -> tuple[Argument, ...]:
        """Returns arguments after the arguments of the base."""
        return ()

    def initial(self) -> tuple[Argument, ...]:
        """Returns arguments between the initial weight and the initial bias."""
        return ()

    def tail(self, base: Base) -> tuple[Argument, ...]:
        """Returns arguments before `name`."""
        return ()

    def parameters(self, base: Base) -> list[ParameterDescription]:
        """Returns the registered parameters, for the docstring."""
        raise NotImplementedError

    def call(self, base: Base, given: dict[str, Any]) -> Variable:
        """Computes a layer from its arguments."""
        raise NotImplementedError


@dataclass(frozen=True)
class Rounded(Transform):
    """Computes with a rounded copy of weight and bias, which is registered as `W_q` and `b_q`.

    Attributes:
        adjective: The kind of the copies, for the docstring.
        switch: The first part of the name of the argument that turns it on.
        options: Further arguments of weight and bias each.
        options_of_convolution: The same in the order that NNabla's convolution has them, if it is another one.
        round: Rounds a parameter: `round(parameter, letter, arguments, outputs)`.
        takes_channel_last: True if convolutions take `channel_last`.
        after: Arguments after the options.
        ranges: Further parameters, for the docstring.
    """

    adjective: str = "Quantized"
    switch: str = "quantize"
    options: tuple[Argument, ...] = ()
    options_of_convolution: tuple[Argument, ...] = ()
    round: Callable[[Variable, str, dict[str, Any], list[Any]], Any] | None = None
    takes_channel_last: bool = True
    after: tuple[Argument, ...] = ()
    ranges: tuple[ParameterDescription, ...] = ()

    def head(self, base: Base) -> tuple[Argument, ...]:
        """Returns `channel_last` for convolutions that take it."""
        return (CHANNEL_LAST,) if base is CONVOLUTION and self.takes_channel_last else ()

    def tail(self, base: Base) -> tuple[Argument, ...]:
        """Returns the options of the weight, then the options of the bias."""
        options = (self.options_of_convolution if base is CONVOLUTION else ()) or self.options
        switch = Argument(f"{self.switch}_{{x}}", "bool", "True", f"Whether to {self.switch} the {{what}}.")
        each = (switch, *options)
        weight = [argument.of("w", "weight", 2) for argument in each]
        return (*weight, *(argument.of("b", "bias", 6) for argument in each), *self.after)

    def parameters(self, base: Base) -> list[ParameterDescription]:
        """Returns weight, bias and their rounded copies."""
        weight = base.weight.replace("inmaps", "inmaps / group")
        return [
            ("W", "Weight in full precision", weight, True),
            ("b", "Bias in full precision", base.maps, True),
            ("W_q", f"{self.adjective} weight", weight, False),
            ("b_q", f"{self.adjective} bias", base.maps, False),
            *self.ranges,
        ]

    def call(self, base: Base, given: dict[str, Any]) -> Variable:
        """Computes the base with the rounded copies."""
        weights = weights_of(base, f"{self.op}_{base.name}", given, is_grouped=True)
        w_init = weights.initializer(given["w_init"], given["rng"])
        b_init = ConstantInitializer() if given["b_init"] is None else given["b_init"]
        w = self.rounded("W", weights.shape, w_init, given)
        b = self.rounded("b", weights.maps, b_init, given) if given["with_bias"] else None
        where = (*place(base, given), *([] if base is AFFINE else [given.get("channel_last", False)]))
        made: Variable = getattr(F, base.name)(given["inp"], w, b, *where)
        return made

    def rounded(self, name: str, shape: tuple[int, ...], init: Any, given: dict[str, Any]) -> Variable:
        """Returns a parameter, or its rounded copy."""
        letter = name.lower()
        parameter = get_parameter_or_create(name, shape, init, True, not given["fix_parameters"])
        if not given[f"{self.switch}_{letter}"]:
            return parameter
        copy = get_parameter_or_create(f"{name}_q", shape, init, False)
        assert self.round is not None
        found: Variable = kept(self.round(parameter, letter, given, [copy.data]))
        return found


@dataclass(frozen=True)
class Combined(Transform):
    """Computes by one function of weight, further parameters and bias.

    Attributes:
        own: Arguments of the function after the arguments of the base.
        extra: Arguments for the initial values of the further parameters.
        described: The further parameters, with the shape as an attribute of `Base`.
        make: Registers the further parameters.
    """

    own: tuple[Argument, ...] = ()
    extra: tuple[Argument, ...] = ()
    described: tuple[tuple[str, str, str], ...] = ()
    make: Callable[[Weights, dict[str, Any]], list[Variable]] | None = None

    def head(self, base: Base) -> tuple[Argument, ...]:
        """Returns the arguments of the function itself."""
        return self.own

    def initial(self) -> tuple[Argument, ...]:
        """Returns the initial values of the further parameters."""
        return self.extra

    def parameters(self, base: Base) -> list[ParameterDescription]:
        """Returns weight, further parameters and bias."""
        further = [(name, meaning, getattr(base, shape), False) for name, meaning, shape in self.described]
        return [("W", "Weight in full precision", base.weight, True), *further, ("b", "Bias", base.maps, True)]

    def call(self, base: Base, given: dict[str, Any]) -> Variable:
        """Computes the function of the family and the base."""
        op = f"{self.op}_{base.name}"
        weights = weights_of(base, op, given, is_grouped=False)
        w = weights.weight(given["w_init"], given["rng"], given["fix_parameters"])
        assert self.make is not None
        further = self.make(weights, given)
        b = bias(weights.maps, given["b_init"], given["with_bias"], given["fix_parameters"])
        own = (given[argument.name] for argument in self.own)
        made: Variable = getattr(F, op)(given["inp"], w, *further, b, *place(base, given), *own)
        return made


def weights_of(base: Base, op: str, given: dict[str, Any], is_grouped: bool) -> Weights:
    """Returns the shapes of the weights of a layer. If not grouped, a convolution has the shapes of one group."""
    if base is AFFINE:
        return Matrix(op, given["inp"], given["n_outmaps"], given["base_axis"])
    groups = (given["group"], given.get("channel_last", False)) if is_grouped else ()
    return Filters(op, given["inp"], given["outmaps"], given["kernel"], given["base_axis"], *groups)


def place(base: Base, given: dict[str, Any]) -> list[Any]:
    """Returns `base_axis`, and for convolutions the arguments that place the taps."""
    names = ("base_axis",) if base is AFFINE else ("base_axis", "pad", "stride", "dilation", "group")
    return [given[name] for name in names]


@dataclass(frozen=True)
class Layer:
    """A layer: a transform of the weight of a base."""

    base: Base
    """The function."""
    transform: Transform
    """The transform of the function's weight."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"{self.transform.op}_{self.base.name}"

    def arguments(self) -> tuple[Argument, ...]:
        """Returns the arguments in order."""
        base, transform = self.base, self.transform
        initial = (W_INIT, *transform.initial(), B_INIT)
        return (*base.head, *transform.head(base), *initial, *base.tail, *SHARED, *transform.tail(base), NAME)

    def signature(self) -> str:
        """Returns the line that defines the function."""
        taken = ", ".join(argument.text() for argument in self.arguments())
        return f"def {self.name}({taken}) -> Variable:"

    def doc(self) -> str:
        """Returns the docstring, without the parameters."""
        base, (summary, paragraph) = self.base, self.transform.about
        arguments = "\n".join(f"    {argument.name}: {argument.meaning}" for argument in self.arguments())
        text = f"{base.title} {summary.replace('{product}', base.product)}\n\n{paragraph}\n\nArgs:\n{arguments}"
        text += f"\n\nReturns:\n    {base.returns}"
        text += f"\n\nSource:\n    {self.transform.source}" if self.transform.source else ""
        return f"{text}\n\nExamples:\n{self.example()}"

    def example(self) -> str:
        """Returns a session that calls the function."""
        shape, arguments, result = self.base.example
        calls = (
            "import kinnor as nn, kinnor.parametric_functions as PF",
            f"x = nn.Variable({shape})",
            f'PF.{self.name}(x, {arguments}, name="demo-{self.name.replace("_", "-")}").shape',
        )
        return "".join(f"    >>> {call}\n" for call in calls) + f"    {result}"


def made(layer: Layer, module: str) -> Callable[..., Variable]:
    """Returns the function of a layer.

    Args:
        layer: The layer.
        module: The name of the module that the function is for.
    """
    base, transform = layer.base, layer.transform
    # Compiled, so that Python itself checks the arguments of each call.
    names: dict[str, Any] = {"call": lambda given: transform.call(base, given)}
    exec(f"from __future__ import annotations\n{layer.signature()} return call(locals())", names)
    function = names[layer.name]
    function.__module__, function.__doc__ = module, layer.doc()
    decorated: Callable[..., Variable] = parametric_function_api(
        f"{transform.scope}_{base.scope}", transform.parameters(base)
    )(function)
    return decorated
