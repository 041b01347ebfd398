"""Rules that rebuild layers on 8-bit levels, by function type.

A rule returns None if the function must stay a float function.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import functions as F
from ..patterns import context_of, is_a, normalization
from .elementwise import joined
from .levels import Levels, Weights, constant, weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import Function, Variable
    from .converting import IntegerLayers
    from .levels import Scale, Target

__all__ = ["COUNTED", "LAYERS", "Product", "numbers"]


def _bias(graph: IntegerLayers, f: Function, unit: Any, n: int) -> Any:
    """The bias of a layer in units of its integer sums. None if it is not constant, or too large for int32."""
    if len(f.inputs) < 3:
        return np.zeros(n)
    value = graph.value(f.inputs[2])
    if value is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = np.round(value.ravel().astype(np.float64) / unit)
    return bias if np.abs(bias).max(initial=0) < 1 << 31 else None


def _convolution(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Convolution`: two spatial axes, not grouped or depthwise."""
    x, args, w = graph.of(f.inputs[0]), f.args, f.inputs[1]
    weights = weights_of(w, graph.given)
    if x is None or x.given or weights is None or w.ndim != 4 or args["base_axis"] != 1:
        return None
    if args["group"] not in (1, w.shape[0]) or args["group"] * w.shape[1] != f.inputs[0].shape[1]:
        return None
    along = weights.along(0)
    if args["channel_last"] or along is None:
        return None
    step, zero = along
    unit = np.float64(x.scale.step) * step
    bias = _bias(graph, f, unit, w.shape[0])
    if bias is None:
        return None
    last = weights.transposed([0, 2, 3, 1])
    y = F.quantized_convolution(
        x.last,
        graph.kept(last.key, lambda: last.levels, np.int8),
        constant([x.scale.zero], np.int64),
        constant(zero, np.int64),
        constant(bias, np.int64),
        constant(unit / target.scale.step, np.float32),
        pad=list(args["pad"]),
        stride=list(args["stride"]),
        dilation=list(args["dilation"]),
        group=args["group"],
        **target.arguments,
    )
    return Levels(target.scale, last=y)


def _images(graph: IntegerLayers, f: Function) -> Product | None:
    """The arguments of a convolution with float results, of images whose scale the graph computes."""
    x, args, w = graph.of(f.inputs[0]), f.args, f.inputs[1]
    weights = weights_of(w, graph.given)
    if x is None or not x.given or weights is None or w.ndim != 4 or len(f.inputs) > 2 or args["channel_last"]:
        return None
    if args["base_axis"] != 1 or args["group"] not in (1, w.shape[0]):
        return None
    along = weights.along(0)
    if along is None or args["group"] * w.shape[1] != f.inputs[0].shape[1]:
        return None
    (step, zero), last = along, weights.transposed([0, 2, 3, 1])
    window = {key: list(args[key]) for key in ("pad", "stride", "dilation")}
    x_step, x_zero = x.parameters
    return Product(
        (
            x.last,
            graph.kept(last.key, lambda: last.levels, np.int8),
            x_zero,
            constant(zero, np.int64),
            constant(np.zeros(w.shape[0]), np.int64),
        ),
        x_step * constant(step, np.float32),
        window={**window, "group": args["group"]},
        is_plain=bool(np.all(step == 1)) and (value := graph.value(x_step)) is not None and bool(np.all(value == 1)),
    )


def _whole_bias(graph: IntegerLayers, f: Function, bias: Variable, n: int) -> Variable | None:
    """Integers that are added to sums of each channel, as 64-bit integers would be. None if they are not such."""
    is_double = any("double" in name for name in f.context.backend)
    if not is_double or bias.size != n or n == 1 or bias.ndim < 3 or bias.shape[-3] != n:
        return None
    with context_of(f):
        # Casts saturate. NaN stands for no integer.
        kept = F.maximum_scalar(F.minimum_scalar(bias, float((1 << 31) - 1)), float(-(1 << 31)))
        found: Variable = F.reshape(F.where(F.equal(kept, kept), kept, F.constant(0.0, kept.shape)), (n,))
    return found


def _matrix(graph: IntegerLayers, f: Function) -> Weights | None:
    """The quantized weight matrix of `Affine` or a two-dimensional `BatchMatmul`, as (inputs, outputs)."""
    args, w = f.args, f.inputs[1]
    if w.ndim != 2:
        return None
    if f.name == "Affine":
        return weights_of(w, graph.given) if args["base_axis"] % f.inputs[0].ndim == f.inputs[0].ndim - 1 else None
    weights = weights_of(w, graph.given)
    if weights is None or args["transpose_a"] or f.inputs[0].ndim != 2:
        return None
    return weights.transposed([1, 0]) if args["transpose_b"] else weights


class Product(NamedTuple):
    """A product of quantized rows and a quantized weight matrix, or a convolution of images, with float results."""

    inputs: tuple[Variable, Variable, Variable, Variable, Variable]
    """Rows, weight matrix, the zero level of each, and the bias in units of the integer sums."""
    scale: Variable
    """Factors of the integer sums."""
    shift: Variable | None = None
    """Numbers to add to the scaled sums, or None."""
    window: dict[str, Any] | None = None
    """The arguments of a convolution of channels-last images. None for a product of rows."""
    is_plain: bool = False
    """True for the sums themselves, without bias, scale and cast."""

    @property
    def numbers(self) -> Variable:
        """The results as a float variable. Images have their channels last."""
        if self.window is not None:
            found: Variable = F.quantized_convolution(*self.inputs, self.scale, **self.window)
            return found
        return F.quantized_affine(*self.inputs, self.scale, self.shift)


def _product(graph: IntegerLayers, f: Function, step_of_y: float | None) -> Product | None:
    """The arguments of a product of quantized rows and a weight matrix.

    `step_of_y` is the step of quantized results, or None for float results. Only then may the graph compute the input's
    scale.
    """
    x, weights = graph.of(f.inputs[0]), _matrix(graph, f)
    along = None if weights is None else weights.along(1)
    if x is None or weights is None or along is None or (x.given and (step_of_y is not None or len(f.inputs) > 2)):
        return None
    (step, zero), n = along, weights.levels.shape[1]
    held = graph.kept(weights.key, lambda: weights.levels, np.int8) if weights.held is None else weights.held
    x_step, x_zero = x.parameters
    if x.given:
        scale, bias = x_step * constant(step, np.float32), np.zeros(n)
    else:
        unit = np.float64(x.scale.step) * step
        bias = _bias(graph, f, unit, n)
        if bias is None:
            return None
        scale = constant(unit / (step_of_y or 1.0), np.float32)
    return Product((x.plain, held, x_zero, constant(zero, np.int64), constant(bias, np.int64)), scale)


def _affine(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Affine`."""
    found = _product(graph, f, target.scale.step)
    if found is None:
        return None
    return Levels(target.scale, plain=F.quantized_affine(*found.inputs, found.scale, **target.arguments))


def _columns(x: Variable, transposes: bool) -> tuple[Variable, bool]:
    """The source of transposed matrices, and the argument `transpose_b` that the product then needs."""
    f, last = x.parent, x.ndim - 1
    if is_a(f, "TransposeUint8") and list(f.args["axes"]) == [*range(last - 1), last, last - 1]:
        return f.inputs[0], not transposes
    return x, transposes


def _matrices(graph: IntegerLayers, f: Function, target: Target | None) -> Variable | None:
    """The batched product of two quantized arrays: quantized, or float without a target."""
    (a, b), args = map(graph.of, f.inputs), f.args
    if a is None or b is None or a.given or b.given or args["transpose_a"]:
        return None
    right, transposes = _columns(b.plain, args["transpose_b"])
    scale = np.float64(a.scale.step) * b.scale.step / (1.0 if target is None else target.scale.step)
    how = {} if target is None else target.arguments
    return F.quantized_batch_matmul(
        a.plain,
        right,
        constant([a.scale.zero], np.int64),
        constant([b.scale.zero], np.int64),
        constant([scale], np.float32),
        transpose_b=transposes,
        **how,
    )


def _matmul(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `BatchMatmul`."""
    if (found := _affine(graph, f, target)) is not None:
        return found
    y = _matrices(graph, f, target)
    return None if y is None else Levels(target.scale, plain=y)


COUNTED = frozenset(["Add2", "Affine", "BatchMatmul", "Convolution", "Identity", "Mul2"])
"""Types of the functions that `numbers` has rules for."""


def numbers(graph: IntegerLayers, f: Function) -> Product | Variable | None:
    """A function of quantized inputs whose results are read as floats. None if there is no integer version.

    Args:
        graph: The conversion under way.
        f: The function.
    """
    if is_a(f, "Convolution"):
        return _images(graph, f)
    if is_a(f, "Affine", "BatchMatmul"):
        found = _product(graph, f, None)
        return _matrices(graph, f, None) if found is None and is_a(f, "BatchMatmul") else found
    return _followed(graph, f)


def _followed(graph: IntegerLayers, f: Function) -> Product | None:
    """A product with a following scalar factor or constant row merged into it, or None."""
    y = f.outputs[0]
    if is_a(f, "Identity"):
        found = graph.product(f.inputs[0])
        return None if found is None else found._replace(is_plain=False)  # it may be a cast to real numbers
    for x, other in (f.inputs, f.inputs[::-1]) if is_a(f, "Mul2", "Add2") else ():
        product = graph.product(x)
        if product is None or y.shape != x.shape:
            continue
        if is_a(f, "Mul2") and other.size == 1 and product.shift is None:
            return product._replace(scale=product.scale * F.reshape(other, (1,)), is_plain=False)
        if product.window is not None:
            bias = _whole_bias(graph, f, other, y.shape[1]) if is_a(f, "Add2") and product.is_plain else None
            if bias is not None:
                return product._replace(inputs=(*product.inputs[:4], bias), is_plain=False)
            continue
        is_row = is_a(f, "Add2") and other.ndim > 0 and other.size == other.shape[-1] == y.shape[-1]
        value = graph.value(other) if is_row and product.shift is None else None
        if value is not None:
            return product._replace(shift=constant(value.ravel(), np.float32))
    return None


def _by_channel(x: Levels, n_axes: int, axis: int, scale: Any, shift: Any, target: Target) -> Levels | None:
    """Levels times `scale` plus `shift`, two vectors along an axis, requantized to `target`."""
    how: dict[str, Any] = {"x_zero": x.scale.zero, **target.arguments}
    factors = constant(scale * np.float64(x.scale.step) / target.scale.step, np.float32)
    shifts = constant(shift / target.scale.step, np.float32)
    if axis == n_axes - 1:
        return Levels(target.scale, plain=F.rescale_uint8(x.plain, factors, shifts, **how))
    if axis == 1 and n_axes == 4:
        return Levels(target.scale, last=F.rescale_uint8(x.last, factors, shifts, **how))
    return None


def _normalization(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `BatchNormalization` by running statistics."""
    x, held = graph.of(f.inputs[0]), f.inputs[1:]
    args, n = f.args, f.outputs[0].ndim
    if x is None or x.given or args["batch_stat"] or len(args["axes"]) != 1:
        return None
    if any(graph.value(v) is None for v in held):
        return None
    for v in held:
        if v.parent is not None:
            v.forward()
    how = normalization(f)
    return _by_channel(x, n, args["axes"][0] % n, how.scale, how.shift, target)


def _paired(graph: IntegerLayers, f: Function) -> tuple[Levels, Levels] | None:
    """The levels of two inputs of equal shape, or None."""
    a, b = map(graph.of, f.inputs)
    if a is None or b is None or a.given or b.given or f.inputs[0].shape != f.inputs[1].shape:
        return None
    return a, b


def _with_constant(graph: IntegerLayers, f: Function) -> tuple[Levels, Any, int] | None:
    """The levels of one input, the other input as a constant vector along an axis, and the axis. None if it differs."""
    for x, other in (f.inputs, f.inputs[::-1]):
        levels, value = graph.of(x), graph.value(other)
        if levels is None or levels.given or value is None or x.shape != f.outputs[0].shape:
            continue
        lengths = (1,) * (x.ndim - value.ndim) + value.shape
        axes = [i for i, n in enumerate(lengths) if n > 1]
        if len(axes) == 1:
            return levels, value.ravel().astype(np.float64), axes[0]
    return None


def _elementwise(x: tuple[Levels, Levels], scale: Scale, function: Callable[..., Variable]) -> Levels:
    """Applies an elementwise function of two arrays of levels, with channels last if one of them has this order."""
    a, b = x
    if a.is_last or b.is_last:
        return Levels(scale, last=function(a.last, b.last))
    return Levels(scale, plain=function(a.plain, b.plain))


def _add(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Add2`."""
    if (pair := _paired(graph, f)) is not None:
        a, b = (levels.scale for levels in pair)
        step = target.scale.step
        how: dict[str, Any] = {"a_scale": a.step / step, "b_scale": b.step / step, "a_zero": a.zero, "b_zero": b.zero}
        return _elementwise(pair, target.scale, partial(F.quantized_add2, **how, **target.arguments))
    found = _with_constant(graph, f)
    if found is None:
        return None
    x, shift, axis = found
    return _by_channel(x, f.outputs[0].ndim, axis, np.ones_like(shift), shift, target)


def _multiply(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Mul2`."""
    pair = _paired(graph, f)
    if pair is not None and pair[0] is not pair[1]:
        a, b = (levels.scale for levels in pair)
        how: dict[str, Any] = {"scale": a.step * b.step / target.scale.step, "a_zero": a.zero, "b_zero": b.zero}
        return _elementwise(pair, target.scale, partial(F.quantized_mul2, **how, **target.arguments))
    found = _with_constant(graph, f)
    if found is None:
        return None
    x, scale, axis = found
    return _by_channel(x, f.outputs[0].ndim, axis, scale, np.zeros_like(scale), target)


def _average(x: Levels, kernel: Sequence[int], stride: Sequence[int] | None, target: Target) -> Levels:
    """Average pooling of levels."""
    how: dict[str, Any] = {"scale": x.scale.step / target.scale.step, "x_zero": x.scale.zero, **target.arguments}
    return Levels(target.scale, last=F.quantized_average_pooling(x.last, list(kernel), stride, **how))


def _mean(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Mean` over both spatial axes."""
    x, args = graph.of(f.inputs[0]), f.args
    if x is None or x.given or f.inputs[0].ndim != 4 or sorted(args["axes"]) != [2, 3] or not args["keep_dims"]:
        return None
    return _average(x, f.inputs[0].shape[2:], None, target)


def _average_pooling(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `AveragePooling` without padding."""
    x, args = graph.of(f.inputs[0]), f.args
    if x is None or x.given or f.inputs[0].ndim != 4 or len(args["kernel"]) != 2 or args["channel_last"]:
        return None
    if any(args["pad"]) or not args["ignore_border"]:
        return None
    return _average(x, args["kernel"], list(args["stride"]), target)


def _concatenation(graph: IntegerLayers, f: Function, target: Target) -> Levels | None:
    """The rule of `Concatenate`."""
    held = [levels for x in f.inputs if (levels := graph.of(x)) is not None and levels.given is None]
    if len(held) < len(f.inputs):
        return None
    return joined([x.mapped(target) for x in held], f.args["axis"] % f.outputs[0].ndim)


LAYERS: dict[str, Callable[[IntegerLayers, Function, Target], Levels | None]] = {
    "Add2": _add,
    "Affine": _affine,
    "AveragePooling": _average_pooling,
    "BatchMatmul": _matmul,
    "BatchNormalization": _normalization,
    "Concatenate": _concatenation,
    "Convolution": _convolution,
    "Mean": _mean,
    "Mul2": _multiply,
}
"""Rules by function type: from the conversion, the function and the target to output levels."""
