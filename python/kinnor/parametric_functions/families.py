"""Families of layers whose weights are binary, rounded or pruned, each declared once for both bases.

`make stubs` writes `quantized.pyi` from these declarations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import functions as F
from .._check import is_truth
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_input, constant
from .declared import AFFINE, CONVOLUTION, INITIALIZER, Argument, Combined, Layer, Rounded
from .decorator import parametric_function_api

if TYPE_CHECKING:
    from .._core import NdArray, Variable
    from ..initializer import Initializer
    from .arguments import Weights

__all__ = ["LAYERS", "min_max_quantize"]


@parametric_function_api(
    "min_max_quantize",
    [
        ("qr_min", "Minimum of the range", "of `ql_min`", False),
        ("qr_max", "Maximum of the range", "of `ql_max`", False),
    ],
)
def min_max_quantize(
    x: Variable,
    ql_min: int | Variable = 0,
    ql_max: int | Variable = 255,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    qr_min_init: Initializer | None = None,
    qr_max_init: Initializer | None = None,
    fix_parameters: bool = False,
    outputs: list[NdArray] | None = None,
    name: str | None = None,
) -> Variable:
    """Rounding to equal steps of a range. The range is trained, taken from the input, or a moving average of it.

    Args:
        x: Input, any shape.
        ql_min: Smallest quantization level, or a variable of levels.
        ql_max: Largest quantization level, or a variable of levels.
        decay: Weight of the old range in an update, with `ema`.
        x_min_max: Whether to use the current range of the input instead of a trained one.
        ema: Whether to use a moving average of the input's range, with `x_min_max`.
        ste_fine_grained: Whether gradients are zero where the input was clipped.
        eps: Smallest width of the range.
        qr_min_init: Initial minimum; by default -6.
        qr_max_init: Initial maximum; by default 6.
        fix_parameters: Whether to use the parameters without a gradient.
        outputs: An array to write the result to.
        name: Name of an outer scope for the parameters.

    Returns:
        Array of the shape of the input.

    Source:
        Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only inference,
        2017.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable.from_numpy_array([0.0, 1.2, 3.0])
        >>> y = PF.min_max_quantize(x, ql_max=3, x_min_max=True, name="demo-min-max-quantize")
        >>> y.forward()
        >>> y.d
        array([0., 1., 3.], dtype=float32)
    """
    op = "min_max_quantize"
    check_input(op, x)
    low, high = _level(op, x, "ql_min", ql_min), _level(op, x, "ql_max", ql_max)
    trained = not (x_min_max and ema)
    first = qr_min_init or ConstantInitializer(-6.0), qr_max_init or ConstantInitializer(6.0)
    least = get_parameter_or_create("qr_min", low.shape, first[0], trained, not fix_parameters)
    greatest = get_parameter_or_create("qr_max", low.shape, first[1], trained, not fix_parameters)
    how = (decay, x_min_max, ema, ste_fine_grained, eps)
    return F.min_max_quantize(x, least, greatest, low, high, *how, outputs=outputs)


def _level(op: str, x: Variable, name: str, level: Any) -> Variable:
    """A quantization level as a parameter, or the variable that was given."""
    if isinstance(level, (int, float)) and not is_truth(level):
        return get_parameter_or_create(name, (1,) * x.ndim, np.array(level).reshape((1,) * x.ndim), False, False)
    check_input(op, level, min_ndim=0)
    return cast("Variable", level)


STRAIGHT_THROUGH = "Gradients reach the weight in full precision as if it had been used; solvers train that."
"""Paragraph of docstrings of layers that transform the weight in the function itself."""
HELD = "Gradients reach the values in full precision, which solvers train; `W_q` and `b_q` hold what was used."
"""Paragraph of docstrings of layers that register the rounded weight and bias."""
JACOB = (
    "Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only inference,\n"
    "    2017."
)
"""The paper on quantization between a minimum and a maximum."""
ZERO_TO = Argument("quantize_zero_to", "float", "1.0", "What a weight of exactly zero becomes: 1, -1 or 0.")
"""The sign of zero, of layers that use signs of weights."""
WB_INIT = Argument(
    "wb_init", INITIALIZER, "None", "Initial binary weight, which the first run overwrites; by default uniform."
)
"""The initial value of the binary weight."""
FINE = Argument(
    "ste_fine_grained_{x}", "bool", "True", "Whether gradients of the {what} are zero where it was clipped."
)
"""The gradient where rounding has clipped a number."""
WITH_ZERO = Argument("with_zero_{x}", "bool", "False", "Whether zero is among the numbers of the {what}.")
"""Whether powers of two include zero."""
POWERS = (
    Argument("n_{x}", "int", "8", "Bits of a number of the {what}, those of its sign and of zero among them."),
    Argument("m_{x}", "int", "2", "The largest power of the {what} is `2**m`."),
)
"""The bits and the largest exponent of powers of two."""
SIGN = Argument("sign_{x}", "bool", "True", "Whether numbers of the {what} have a sign.")
"""Whether fixed-point numbers and powers of two have a sign."""


def _binary(weights: Weights, given: dict[str, Any]) -> Variable:
    """Registers and returns the binary weights `Wb`."""
    return weights.other("Wb", given["wb_init"], given["rng"])


def _marks(weights: Weights, given: dict[str, Any]) -> Variable:
    """Returns the marks `I` of the weights that are fixed: zeros, or a parameter if `i_init` is given."""
    init = given["i_init"]
    if init is None:
        return constant("I", weights.shape)
    return get_parameter_or_create("I", weights.shape, init, False)


def _fixed_point(parameter: Variable, x: str, given: dict[str, Any], outputs: list[Any]) -> Any:
    """Quantizes a parameter to fixed point. The arguments of the layer that apply end in `_x`."""
    sign, n, delta = given[f"sign_{x}"], given[f"n_{x}"], given[f"delta_{x}"]
    fine = given[f"ste_fine_grained_{x}"]
    quantize = given[f"quantize_{x}"]
    return F.fixed_point_quantize(
        parameter, quantize=quantize, sign=sign, n=n, delta=delta, ste_fine_grained=fine, outputs=outputs
    )


def _power(parameter: Variable, x: str, given: dict[str, Any], outputs: list[Any]) -> Any:
    """Quantizes a parameter to powers of two. The arguments of the layer that apply end in `_x`."""
    sign, zero, n, m = given[f"sign_{x}"], given[f"with_zero_{x}"], given[f"n_{x}"], given[f"m_{x}"]
    fine = given[f"ste_fine_grained_{x}"]
    quantize = given[f"quantize_{x}"]
    return F.pow2_quantize(
        parameter, quantize=quantize, sign=sign, with_zero=zero, n=n, m=m, ste_fine_grained=fine, outputs=outputs
    )


def _min_max(parameter: Variable, x: str, given: dict[str, Any], outputs: list[Any]) -> Any:
    """Quantizes a parameter between a learned minimum and maximum. `x` is "w" or "b" and selects the arguments."""
    bound = {"w": 2.0, "b": 6.0}[x]
    least, greatest = given[f"qr_min_{x}_init"], given[f"qr_max_{x}_init"]
    return min_max_quantize(
        parameter,
        given[f"ql_min_{x}"],
        given[f"ql_max_{x}"],
        0.999,
        given[f"{x}_min_max"],
        False,
        given[f"ste_fine_grained_{x}"],
        given["eps"],
        ConstantInitializer(-bound) if least is None else least,
        ConstantInitializer(bound) if greatest is None else greatest,
        given["fix_parameters"],
        outputs,
        name=f"min_max_quantize_{x}",
    )


def _pruned(parameter: Variable, x: str, given: dict[str, Any], outputs: list[Any]) -> Any:
    """Sets the smallest elements of a parameter to zero, at the rate `rate_x`."""
    return F.prune(parameter, given[f"rate_{x}"], outputs=outputs)


TRANSFORMS = (
    Combined(
        op="binary_connect",
        scope="bicon",
        about=("by the signs of the weight: `y = x{product}sign(W) + b`.", STRAIGHT_THROUGH),
        source="Courbariaux, Bengio, David: BinaryConnect, 2015.",
        own=(ZERO_TO,),
        extra=(WB_INIT,),
        described=(("Wb", "Binary weight", "weight"),),
        make=lambda weights, given: [_binary(weights, given)],
    ),
    Combined(
        op="binary_weight",
        scope="bwn",
        about=(
            "by the signs of the weight and a scale for each output: `y = alpha x{product}sign(W) + b`.",
            STRAIGHT_THROUGH,
        ),
        source="Rastegari, Ordonez, Redmon, Farhadi: XNOR-Net, 2016.",
        own=(ZERO_TO,),
        extra=(WB_INIT,),
        described=(
            ("Wb", "Binary weight", "weight"),
            ("alpha", "Scale, the mean absolute weight of each output", "maps"),
        ),
        make=lambda weights, given: [_binary(weights, given), constant("alpha", weights.maps)],
    ),
    Combined(
        op="inq",
        scope="inq",
        about=(
            "whose weights become powers of two, step by step.",
            "After each of `inq_iterations` forward runs more weights are rounded and fixed; the others go on being "
            "trained.",
        ),
        source="Zhou, Yao, Guo, Xu, Chen: Incremental network quantization, 2017.",
        own=(
            Argument("num_bits", "int", "4", "Bits of a weight that has been fixed, one of them for zero."),
            Argument(
                "inq_iterations",
                "Sequence[int]",
                "()",
                "Forward runs after which half of the weights that are still free are fixed; at the last one,\n"
                "        all.",
            ),
            Argument(
                "selection_algorithm", "str", '"random"', "Which weights are fixed first: `largest_abs` or `random`."
            ),
            Argument("seed", "int", "-1", "Seed of the random selection; -1 for one that differs."),
        ),
        extra=(
            Argument(
                "i_init", INITIALIZER, "None", "Initial marks of the weights that are fixed; by default none are."
            ),
        ),
        described=(("I", "Marks of the weights that are fixed", "weight"),),
        make=lambda weights, given: [_marks(weights, given)],
    ),
    Rounded(
        op="fixed_point_quantized",
        scope="fp_quantized",
        about=("with a weight and a bias rounded to fixed-point numbers.", HELD),
        source="",
        options=(
            SIGN,
            Argument("n_{x}", "int", "8", "Bits of a number of the {what}, its sign among them."),
            Argument("delta_{x}", "float", "2**-4", "Step between neighbouring numbers of the {what}."),
            FINE,
        ),
        round=_fixed_point,
    ),
    Rounded(
        op="min_max_quantized",
        scope="min_max_quantized",
        about=("with a weight and a bias rounded to steps between a least and a greatest number.", HELD),
        source=JACOB,
        options=(
            Argument("ql_min_{x}", "int", "0", "Least level of the {what}."),
            Argument("ql_max_{x}", "int", "255", "Greatest level of the {what}."),
            Argument(
                "{x}_min_max", "bool", "False", "Whether the range is that of the {what}'s values, not a trained one."
            ),
            Argument(
                "qr_min_{x}_init", INITIALIZER, "None", "Initial least number of the {what}; by default -{bound}."
            ),
            Argument(
                "qr_max_{x}_init", INITIALIZER, "None", "Initial greatest number of the {what}; by default {bound}."
            ),
            FINE,
        ),
        round=_min_max,
        after=(Argument("eps", "float", "0.01", "A range is at least this wide."),),
        ranges=(
            (
                "min_max_quantize_{w,b}/min_max_quantize/qr_{min,max}",
                "Range of weight and bias",
                "one element, with the axes of what it is for",
                True,
            ),
        ),
    ),
    Rounded(
        op="pow2_quantized",
        scope="pow2_quantized",
        about=("with a weight and a bias rounded to powers of two.", HELD),
        source="",
        options=(SIGN, WITH_ZERO, *POWERS, FINE),
        options_of_convolution=(WITH_ZERO, SIGN, *POWERS, FINE),
        round=_power,
        takes_channel_last=False,
    ),
    Rounded(
        op="pruned",
        scope="pruned",
        about=("with a weight and a bias of which the smallest values are set to zero.", HELD),
        source="Han, Pool, Tran, Dally: Learning both weights and connections for efficient neural networks, 2015.",
        adjective="Pruned",
        switch="prune",
        options=(Argument("rate_{x}", "float", "0.9", "Share of the {what} that is set to zero."),),
        round=_pruned,
    ),
)
"""The families of layers: each makes an affine layer and a convolution."""

LAYERS = {layer.name: layer for layer in (Layer(base, each) for each in TRANSFORMS for base in (AFFINE, CONVOLUTION))}
"""The declared layers by name."""
