"""Converts layers between `DequantizeLinear` and `QuantizeLinear` to integer layers on 8-bit levels.

Results are the same as with float layers, except that rounding in float32 may shift a level by one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Variable
from ..patterns import context_of, is_a
from .elementwise import EACH, MOVES, framed, table_of
from .layers import COUNTED, LAYERS, Product, numbers
from .levels import SIGNED, Levels, Scale, Target, constant, is_constant, is_dynamic, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import Function

__all__ = ["IntegerLayers"]


_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("Maximum2", "MaximumScalar"), (None, math.inf)),
    **dict.fromkeys(("Minimum2", "MinimumScalar"), (-math.inf, None)),
    "ReLU": (0.0, math.inf),
    "ReLU6": (0.0, 6.0),
}
"""Lower and upper bounds of clipping functions; None is the function's number."""


class IntegerLayers:
    """Converts the graphs of one network to integer layers. Graphs for several shapes share the constants."""

    def __init__(self) -> None:
        self._made: dict[Any, Variable] = {}
        self.given: set[Variable] = set()
        self._levels: dict[Variable, tuple[Levels, int]] = {}
        self._numbers: dict[Variable, Levels] = {}
        self._products: dict[Variable, Product] = {}
        # Numbers of images with their channels last, by the numbers in their own order.
        self._last: dict[Variable, Variable] = {}
        self._instead: list[tuple[Variable, Variable]] = []

    def convert(self, order: Sequence[Function], outputs: Sequence[Variable], inputs: Sequence[Variable]) -> bool:
        """Converts a static graph in place: its outputs stay the same variables.

        Args:
            order: Functions of the graph in the order of a run.
            outputs: Outputs of the graph.
            inputs: Inputs of the graph. All other variables without parent are constants.

        Returns:
            True if the graph quantizes.
        """
        if not any(is_a(f, "QuantizeLinear") for f in order):
            return False
        self.given, kept = set(inputs), set(outputs)
        for f in order:
            kind = f.name
            if kind == "QuantizeLinear":
                self._quantize(f)
            elif kind == "DequantizeLinear":
                self._dequantize(f)
            elif kind == "Pad" and f.inputs[0] in self._numbers:
                self._frame(f)
            elif kind in MOVES and f.inputs[0] in self._levels:
                self._move(f)
            elif kind in COUNTED or kind in EACH:
                self._count(f, kept)
        for y, instead in self._instead:
            y.rewire_on(instead)
        self._levels, self._numbers, self._products, self._instead, self.given = {}, {}, {}, [], set()
        self._last = {}
        return True

    def kept(self, key: Any, make: Callable[[], Any], dtype: Any) -> Variable:
        """A constant that graphs share. It is made once.

        Args:
            key: Identifies the constant.
            make: Makes its values.
            dtype: Their type.
        """
        if key not in self._made:
            values = make()
            self._made[key] = made = Variable(values.shape)
            made.data.cast(dtype)[...] = values  # may be a transposed view, which is copied once
        return self._made[key]

    def of(self, x: Variable) -> Levels | None:
        """The levels that a variable dequantizes, or None.

        Args:
            x: The variable.
        """
        return self._numbers.get(x)

    def product(self, x: Variable) -> Product | None:
        """The product of levels that stands for a variable: sums of integers with their scale.

        None if there is none.

        Args:
            x: The variable.
        """
        return self._products.get(x)

    def value(self, x: Variable) -> Any:
        """The values of a constant variable, else None.

        Args:
            x: The variable.
        """
        return value_of(x, self.given)

    def _quantize(self, f: Function) -> None:
        """Converts a `QuantizeLinear`: its levels are computed from levels if possible, else by quantizing."""
        x, step, zero = f.inputs
        args, y = f.args, f.outputs[0]
        if is_constant(x, self.given) or step.size != 1 or zero.size != 1:
            return
        if args["round_mode"] != "HALF_TO_EVEN" or args["narrow_range"]:
            return
        shift = SIGNED if args["dtype"] == 1 else 0
        if not is_constant(step, self.given) or not is_constant(zero, self.given):
            found = self._by_given(x, step, zero, shift)
        elif (scale := self._scale(step, zero, shift)) is not None:
            found = self._computed(x, Target(scale))
        else:
            return
        self._note(y, found, shift)

    def _scale(self, step: Variable, zero: Variable, shift: int) -> Scale | None:
        """The scale from a constant step and zero point. None if it is not valid for 8-bit levels."""
        distance, at = float(self.value(step).item()), float(self.value(zero).item()) + shift
        is_one = 0 < distance < math.inf and at in range(256)
        return Scale(distance, int(at)) if is_one else None

    def _note(self, y: Variable, levels: Levels, shift: int) -> None:
        """Records the levels of a variable. `shift` is the difference between stored and declared levels."""
        self._levels[y] = levels, shift
        # For readers of the levels as floats. Without such readers it never runs.
        self._instead.append((y, F.add_scalar(levels.plain, -float(shift))))

    def _move(self, f: Function) -> None:
        """Converts a function that moves or selects levels."""
        levels, shift = self._levels[f.inputs[0]]
        found = MOVES[f.name](levels, f)
        if found is not None:
            self._note(f.outputs[0], found, shift)

    def _frame(self, f: Function) -> None:
        """Converts a `Pad` of dequantized numbers: by zeros, or by -inf before max pooling."""
        levels, y, args = self._numbers[f.inputs[0]], f.outputs[0], f.args
        if levels.given is not None or args["mode"] != "constant":
            return
        if args["constant_value"] == 0:
            self._numbers[y] = framed(levels, f, levels.scale.zero)
            self._instead.append((y, self._numbers[y].dequantized()))
        elif args["constant_value"] == -math.inf and all(is_a(g, "MaxPooling") for g in y.function_references):
            self._numbers[y] = framed(levels, f, 0)

    def _by_given(self, x: Variable, step: Variable, zero: Variable, shift: int) -> Levels:
        """The levels of `x` with a step and zero point that the graph computes."""
        inner = [f.inputs[0] if is_a(f := v.parent, "Reshape") else v for v in (step, zero)]
        if not shift and is_dynamic(x, *inner):
            last = self._last.get(x)
            levels, *parameters = F.dynamic_quantize_uint8(x if last is None else last)
            self._instead += zip(inner, parameters, strict=True)
            if last is not None:
                return Levels(last=levels, given=(step, zero))
            return Levels(plain=levels, given=(step, zero))
        zero = F.add_scalar(zero, float(shift)) if shift else zero
        return Levels(plain=F.quantize_uint8(x, step, zero), given=(step, zero))

    def _computed(self, x: Variable, target: Target) -> Levels:
        """The levels of `x` with a constant quantization: by a layer, a move or a table if possible."""
        source, kept = self._bounded(x, target)
        layer = source.parent
        if (own := self.of(source)) is not None and own.given is None:
            return own.mapped(kept)
        found = None
        if is_a(layer, *LAYERS):
            found = LAYERS[layer.name](self, layer, kept)
        elif is_a(layer, *MOVES):  # quantize before the move
            found = MOVES[layer.name](self._computed(layer.inputs[0], kept), layer)
        if found is None:
            found = table_of(self, x, target)
        if found is None:
            scale = constant(target.scale.step, np.float32), constant(target.scale.zero, np.int64)
            found = Levels(target.scale, plain=F.quantize_uint8(x, *scale))
        return found

    def _bounded(self, x: Variable, target: Target) -> tuple[Variable, Target]:
        """Strips clipping functions from `x`. Returns the unclipped variable, and the target with these bounds."""
        f = x.parent
        if f is None or f.name not in _BOUNDS:
            return x, target
        inner, *other = f.inputs
        if other and is_constant(inner, self.given):
            inner, other = other[0], [inner]
        number = self.value(other[0]) if other else np.array(f.args.get("val", 0.0))
        if number is None or number.size != 1 or inner.shape != x.shape:
            return x, target
        least, most = _BOUNDS[f.name]
        own = float(number.item())
        return self._bounded(inner, target.within(own if least is None else least, own if most is None else most))

    def _take(self, x: Variable) -> None:
        """Records the levels of an input of the graph, if it has 8-bit levels."""
        if x.dtype == np.uint8:
            self._levels[x] = Levels(plain=x), 0
        elif x.dtype == np.int8:
            one = constant([1.0], np.float32), constant([0], np.int64)
            self._levels[x] = Levels(plain=F.quantize_uint8(F.add_scalar(x, float(SIGNED)), *one)), SIGNED

    def _dequantize(self, f: Function) -> None:
        """Converts a `DequantizeLinear`: records the levels of its output."""
        x, step, zero = f.inputs
        if x in self.given and x not in self._levels:
            self._take(x)
        if x not in self._levels or step.size != 1 or zero.size != 1:
            return
        levels, shift = self._levels[x]
        if is_constant(step, self.given) and is_constant(zero, self.given):
            scale = self._scale(step, zero, shift)
            if scale is None:
                return
            found = levels.standing_for(scale)
        else:
            zero = F.add_scalar(zero, float(shift)) if shift else zero
            found = levels.standing_for(given=(F.reshape(step, (1,)), F.reshape(zero, (1,))))
        self._numbers[f.outputs[0]] = found
        self._instead.append((f.outputs[0], found.dequantized()))

    def _count(self, f: Function, outputs: set[Variable]) -> None:
        """Converts a layer with float readers, if it has an integer version."""
        if not any(x in self._numbers or x in self._products or x in self._last for x in f.inputs):
            return
        y = f.outputs[0]
        if y not in outputs and all(is_a(reader, "QuantizeLinear") for reader in y.function_references):
            return
        with context_of(f):
            found = numbers(self, f)
        if isinstance(found, Product):
            self._products[y] = found
            with context_of(f):
                is_image, found = found.window is not None, found.numbers
                found = self._put_first(y, found) if is_image else found
        elif found is None:
            found = self._each_last(f)
        if found is not None:
            self._instead.append((y, found))

    def _put_first(self, y: Variable, last: Variable) -> Variable:
        """Notes the channels-last form of `y`. Returns its numbers in their own order, which readers may not need."""
        self._last[y] = last
        return F.transpose(last, (0, 3, 1, 2))

    def _each_last(self, f: Function) -> Variable | None:
        """An elementwise function of images that exist with their channels last, or None."""
        y, inputs = f.outputs[0], f.inputs
        if not is_a(f, *EACH) or not any(x in self._last for x in inputs):
            return None
        if any(x.shape != y.shape if x in self._last else x.size != 1 for x in inputs):
            return None
        held = [self._last[x] if x in self._last else F.reshape(x, (1, 1, 1, 1)) for x in inputs]
        with context_of(f):
            return self._put_first(y, EACH[f.name](*held))
