"""Static graphs in which levels of 8 bits become numbers before each layer and levels after it: layers then take levels.

Knows functions and their inputs; knows no files. Results are those of the numbers but for the last digits of float32, which
may round a level to its neighbour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functions as F
from ..experimental.graph_converters.layers import is_a
from .constants import is_constant, value_of
from .elementwise import table_of
from .layers import LAYERS, NUMBERS
from .levels import SIGNED, Levels, Scale, Target, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import Function, Variable

__all__ = ["IntegerLayers"]


class IntegerLayers:
    """What was made for one network, which its graphs for several shapes share."""

    def __init__(self) -> None:
        self._made: dict[Any, Variable] = {}
        self.given: set[Variable] = set()
        self._levels: dict[Variable, tuple[Levels, int]] = {}
        self._numbers: dict[Variable, Levels] = {}
        self._instead: list[tuple[Variable, Variable]] = []

    def convert(self, outputs: Sequence[Variable], inputs: Sequence[Variable]) -> bool:
        """Convert a static graph in its place: its outputs are the same variables. Whether there was anything to convert.

        Args:
            outputs: Its outputs.
            inputs: What each call gives; all other variables that no function computes are constants.
        """
        order: dict[Function, None] = {}
        for output in outputs:
            output.visit(lambda f: order.setdefault(f))
        if not any(is_a(f, "QuantizeLinear") for f in order):
            return False
        self.given = set(inputs)
        for f in order:
            if is_a(f, "QuantizeLinear"):
                self._quantize(f)
            elif is_a(f, "DequantizeLinear"):
                self._dequantize(f)
            elif is_a(f, *NUMBERS):
                self._count(f, set(outputs))
        for y, instead in self._instead:
            y.rewire_on(instead)
        self._levels, self._numbers, self._instead, self.given = {}, {}, [], set()
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
        known = self.value(step), self.value(zero)
        if known[0] is None or known[1] is None:
            zero = F.add_scalar(zero, float(shift)) if shift else zero
            found = Levels(plain=F.quantize_uint8(x, step, zero), given=(step, zero))
        else:
            target = Target(Scale(float(known[0].item()), int(known[1].item()) + shift))
            found = self._computed(x, target)
        self._levels[y] = found, shift
        # Whoever reads the levels themselves; if nobody does, this is never run.
        self._instead.append((y, F.add_scalar(found.plain, -float(shift))))

    def _computed(self, x: Variable, target: Target) -> Levels:
        """The levels of `x`."""
        source, least = x, target.least
        while is_a(source.parent, "ReLU"):
            source, least = source.parent.inputs[0], max(least, target.scale.zero)
        rectified = target._replace(least=least)
        if (own := self.of(source)) is not None and own.given is None:
            return own.mapped(rectified)
        layer = source.parent
        found = LAYERS[layer.info.type_name](self, layer, rectified) if is_a(layer, *LAYERS) else None
        if found is None:
            found = table_of(self, x, target)
        if found is None:
            scale = constant(target.scale.step, np.float32), constant(target.scale.zero, np.int64)
            found = Levels(target.scale, plain=F.quantize_uint8(x, *scale))
        return found

    def _dequantize(self, f: Function) -> None:
        """Note which levels a variable has the numbers of."""
        x, step, zero = f.inputs
        if x not in self._levels or step.size != 1 or zero.size != 1:
            return
        levels, shift = self._levels[x]
        known = self.value(step), self.value(zero)
        if known[0] is not None and known[1] is not None:
            found = levels.standing_for(Scale(float(known[0].item()), int(known[1].item()) + shift))
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
        found = NUMBERS[f.info.type_name](self, f)
        if found is not None:
            self._instead.append((y, found))
