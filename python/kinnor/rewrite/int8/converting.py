"""Static graphs in which levels of 8 bits become numbers before a layer and levels after it: layers then take levels.

Knows functions and their inputs; knows no files. Results are those of the numbers but for the last digits of float32,
which may round a level to its neighbour.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..patterns import is_a
from .constants import is_constant, value_of
from .dynamic import is_dynamic
from .elementwise import table_of
from .layers import LAYERS, Product, numbers
from .levels import SIGNED, Levels, Scale, Target, constant
from .moves import MOVES, framed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import Function, Variable

__all__ = ["IntegerLayers"]


_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("Maximum2", "MaximumScalar"), (None, math.inf)),
    **dict.fromkeys(("Minimum2", "MinimumScalar"), (-math.inf, None)),
    "ReLU": (0.0, math.inf),
    "ReLU6": (0.0, 6.0),
}
"""Between which numbers functions keep their input; None is the number that is given."""


class IntegerLayers:
    """What was made for one network, which its graphs for several shapes share."""

    def __init__(self) -> None:
        self._made: dict[Any, Variable] = {}
        self.given: set[Variable] = set()
        self._levels: dict[Variable, tuple[Levels, int]] = {}
        self._numbers: dict[Variable, Levels] = {}
        self._products: dict[Variable, Product] = {}
        self._instead: list[tuple[Variable, Variable]] = []

    def convert(self, order: Sequence[Function], outputs: Sequence[Variable], inputs: Sequence[Variable]) -> bool:
        """Convert a static graph in its place, its outputs being the same variables. Whether there are levels in it.

        Args:
            order: Its functions, each after those that it takes from.
            outputs: Its outputs.
            inputs: What each call gives; all other variables that no function computes are constants.
        """
        if not any(is_a(f, "QuantizeLinear") for f in order):
            return False
        self.given, kept = set(inputs), set(outputs)
        for f in order:
            if is_a(f, "QuantizeLinear"):
                self._quantize(f)
            elif is_a(f, "DequantizeLinear"):
                self._dequantize(f)
            elif is_a(f, "Pad") and f.inputs[0] in self._numbers:
                self._frame(f)
            elif is_a(f, *MOVES) and f.inputs[0] in self._levels:
                self._move(f)
            else:
                self._count(f, kept)
        for y, instead in self._instead:
            y.rewire_on(instead)
        self._levels, self._numbers, self._products, self._instead, self.given = {}, {}, {}, [], set()
        return True

    def kept(self, key: Any, make: Callable[[], Any], dtype: Any) -> Variable:
        """A constant that graphs share.

        Args:
            key: Names it.
            make: Makes its values.
            dtype: Their type.
        """
        if key not in self._made:
            self._made[key] = constant(make(), dtype)
        return self._made[key]

    def of(self, x: Variable) -> Levels | None:
        """The levels that a variable has the numbers of.

        Args:
            x: The variable.
        """
        return self._numbers.get(x)

    def product(self, x: Variable) -> Product | None:
        """The product of levels whose numbers a variable has.

        Args:
            x: The variable.
        """
        return self._products.get(x)

    def value(self, x: Variable) -> Any:
        """The values of a constant; None if it is none.

        Args:
            x: The variable.
        """
        return value_of(x, self.given)

    def _quantize(self, f: Function) -> None:
        """Have levels computed from levels, or as levels at least."""
        x, step, zero = f.inputs
        args, y = f.info.args, f.outputs[0]
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
        """A scale of constants; None if it is none of levels of 8 bits."""
        distance, at = float(self.value(step).item()), float(self.value(zero).item()) + shift
        is_one = 0 < distance < math.inf and at in range(256)
        return Scale(distance, int(at)) if is_one else None

    def _note(self, y: Variable, levels: Levels, shift: int) -> None:
        """Keep the levels of a variable for those who read them."""
        self._levels[y] = levels, shift
        # Whoever reads them as numbers; if nobody does, this is never run.
        self._instead.append((y, F.add_scalar(levels.plain, -float(shift))))

    def _move(self, f: Function) -> None:
        """Have levels chosen, or given other places, as they are."""
        levels, shift = self._levels[f.inputs[0]]
        found = MOVES[f.info.type_name](levels, f)
        if found is not None:
            self._note(f.outputs[0], found, shift)

    def _frame(self, f: Function) -> None:
        """Note which levels numbers in a frame have: of zeros, or of what is never the largest in a window."""
        levels, y, args = self._numbers[f.inputs[0]], f.outputs[0], f.info.args
        if levels.given is not None or args["mode"] != "constant":
            return
        if args["constant_value"] == 0:
            self._numbers[y] = framed(levels, f, levels.scale.zero)
            self._instead.append((y, self._numbers[y].dequantized()))
        elif args["constant_value"] == -math.inf and all(is_a(g, "MaxPooling") for g in y.function_references):
            self._numbers[y] = framed(levels, f, 0)

    def _by_given(self, x: Variable, step: Variable, zero: Variable, shift: int) -> Levels:
        """The levels of `x` by a scale that the graph computes."""
        inner = [f.inputs[0] if is_a(f := v.parent, "Reshape") else v for v in (step, zero)]
        if not shift and is_dynamic(x, *inner):
            levels, *parameters = F.dynamic_quantize_uint8(x)
            self._instead += zip(inner, parameters, strict=True)
            return Levels(plain=levels, given=(step, zero))
        zero = F.add_scalar(zero, float(shift)) if shift else zero
        return Levels(plain=F.quantize_uint8(x, step, zero), given=(step, zero))

    def _computed(self, x: Variable, target: Target) -> Levels:
        """The levels of `x`."""
        source, kept = self._bounded(x, target)
        layer = source.parent
        if (own := self.of(source)) is not None and own.given is None:
            return own.mapped(kept)
        found = None
        if is_a(layer, *LAYERS):
            found = LAYERS[layer.info.type_name](self, layer, kept)
        elif is_a(layer, *MOVES):  # levels of what is moved are moved levels
            found = MOVES[layer.info.type_name](self._computed(layer.inputs[0], kept), layer)
        if found is None:
            found = table_of(self, x, target)
        if found is None:
            scale = constant(target.scale.step, np.float32), constant(target.scale.zero, np.int64)
            found = Levels(target.scale, plain=F.quantize_uint8(x, *scale))
        return found

    def _bounded(self, x: Variable, target: Target) -> tuple[Variable, Target]:
        """What is only kept between bounds to give `x`, and its levels with these bounds."""
        f = x.parent
        if f is None or f.info.type_name not in _BOUNDS:
            return x, target
        inner, *other = f.inputs
        if other and is_constant(inner, self.given):
            inner, other = other[0], [inner]
        number = self.value(other[0]) if other else np.array(f.info.args.get("val", 0.0))
        if number is None or number.size != 1 or inner.shape != x.shape:
            return x, target
        least, most = _BOUNDS[f.info.type_name]
        own = float(number.item())
        return self._bounded(inner, target.within(own if least is None else least, own if most is None else most))

    def _dequantize(self, f: Function) -> None:
        """Note which levels a variable has the numbers of."""
        x, step, zero = f.inputs
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
        """Have a layer whose numbers are read as such computed from levels."""
        y = f.outputs[0]
        if y not in outputs and all(is_a(reader, "QuantizeLinear") for reader in y.function_references):
            return
        found = numbers(self, f)
        if isinstance(found, Product):
            self._products[y] = found
            found = found.numbers
        if found is not None:
            self._instead.append((y, found))
