"""Graphs for quantization-aware training: with recorders of ranges, and then with the rounding that these lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import UnsupportedError
from ....parameter import get_parameter_or_create, parameter_scope
from ....rewrite.patterns import is_a
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...._core import Function, Variable

__all__ = ["QuantizeNonQNNToRecordingModifier", "QuantizeRecordingToTrainingModifier"]

PAIRS = ("Add2", "Sub2", "Mul2", "Div2", "Pow2")
"""Types whose two inputs are both activations."""
SHARING = ("Add2", "Concatenate")
"""Types whose inputs all have one scale."""
WITH_BIAS = ("Affine", "Convolution", "Deconvolution", "DepthwiseConvolution", "DepthwiseDeconvolution")
"""Types whose third input is a bias, in units of the products of the first two."""


class _Quantization(FunctionModifier):
    """What both modifiers ask: how functions are numbered, and which of their inputs are activations."""

    def __init__(self, functions_ranks: Mapping[Function, int], config: Any = None) -> None:
        super().__init__()
        if config is None:
            from ...utils.qnn.configuration import QATConfig

            config = QATConfig()
        self.functions_ranks, self._config = functions_ranks, config
        self._axes = [3] if config.channel_last else [1]

    def get_function_rank(self, f: Function) -> int:
        """The number of a function in its graph.

        Args:
            f: The function.

        Returns:
            Its number, or -1 if it has none.
        """
        return self.functions_ranks.get(f, -1)

    def _scope(self, f: Function) -> str:
        """Where the parameters of what is recorded around a function are."""
        return f"{f.info.type_name}-{self.get_function_rank(f)}"

    @staticmethod
    def _activations(f: Function, inputs: Sequence[Variable]) -> int:
        """How many of the inputs of a function are activations: parameters come after them."""
        kind = f.info.type_name
        return len(inputs) if kind in ("Concatenate", "Stack") else 2 if kind in PAIRS else 1


class QuantizeNonQNNToRecordingModifier(_Quantization):
    """Puts recorders of ranges before functions, or around them.

    What is recorded are parameters in a scope by the function's type and number, such as `Convolution-3/M-x0` of the
    first activation and `Convolution-3/M-w0` of the weight. `Add2` and `Concatenate` record into one place for all
    their inputs.

    Args:
        functions_ranks: The number of each function, as `kinnor.utils.qnn.FunctionsRankRecorder` finds it.
        config: A `kinnor.utils.qnn.QATConfig`; by default one as it is made.
        training: Whether runs record. Otherwise the recorders pass on what they are given.

        >>> import kinnor as nn, kinnor.functions as F, kinnor.parametric_functions as PF
        >>> import kinnor.experimental.graph_converters as GC
        >>> from kinnor.utils.qnn import FunctionsRankRecorder, QATConfig
        >>> config, ranks = QATConfig(), FunctionsRankRecorder()
        >>> config.skip_inputs_layers = config.skip_outputs_layers = []
        >>> y = PF.affine(nn.Variable((2, 3)), 4, with_bias=False, name="recorded")
        >>> y.visit(ranks)
        >>> modifier = GC.QuantizeNonQNNToRecordingModifier(ranks.functions_ranks, config)
        >>> [v.parent.name for v in GC.GraphConverter([modifier]).convert(y).parent.inputs]
        ['MaxMvaRecorder', 'MinMaxMinMaxRecorder']
    """

    def __init__(self, functions_ranks: Mapping[Function, int], config: Any = None, training: bool = True) -> None:
        super().__init__(functions_ranks, config)
        self._training = training
        self._kind = self._config.recorder_activation().name()

    def check(self, f: Function) -> bool:
        """Whether recorders come before a function.

        Args:
            f: The function.

        Returns:
            False for those that the configuration leaves out, and for batch normalizations.
        """
        chosen = self._config.record_layers
        if is_a(f, "Sink", "BatchNormalization") or (chosen and not is_a(f, *chosen)):
            return False
        first, last = self._config.skip_inputs_layers, self._config.skip_outputs_layers
        skipped = (is_a(f, *first) and not _meets(f, first, _before)) or (
            is_a(f, *last) and not _meets(f, last, _after)
        )
        return not skipped

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """See `FunctionModifier.modify`."""
        if not self.check(f):
            return None
        y = self._modify_as_same(f, self._shared(f, inputs, self._recorded(f, inputs)))
        if self._config.recorder_position != self._config.RecorderPosition.BOTH:
            return y
        outputs = y if isinstance(y, (list, tuple)) else [y]
        after = [self._recorded_for(f, place, h) for place, h in enumerate(outputs)]
        return after if isinstance(y, (list, tuple)) else after[0]

    def _recorded_for(self, f: Function, place: int, h: Variable) -> Variable:
        """An output, recorded for the function that takes it first."""
        readers = f.outputs[place].function_references
        return self._record(h, self._scope(readers[0]), "x0") if readers else h

    def _record(self, x: Variable, scope: str, name: str, weight: bool = False) -> Variable:
        recorder = self._config.recorder_weight if weight else self._config.recorder_activation
        with parameter_scope(scope):
            made: Variable = recorder()(x, axes=self._axes, training=self._training, name=name)
        return made

    def _recorded(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function behind recorders; an activation that has one keeps it."""
        activations = self._activations(f, inputs)
        found = []
        for place, x in enumerate(inputs[:activations]):
            readers = x.function_references
            if readers and is_a(readers[0], self._kind):
                found.append(readers[0].outputs[0])
            elif is_a(x.parent, self._kind):
                found.append(x)
            else:
                found.append(self._record(x, self._scope(f), f"x{place}"))
        for place, w in enumerate(inputs[activations:]):
            found.append(self._record(w, self._scope(f), f"w{place}", weight=True))
        return found

    def _shared(self, f: Function, inputs: list[Variable], recorded: list[Variable]) -> list[Variable]:
        """Behind recorders that share the place of the input that is computed first."""
        if not is_a(f, *SHARING):
            return recorded
        ranks = [inputs[0].rank, *(x.rank for x in recorded[1:])]
        first = ranks.index(min(ranks))
        scope = self.get_parameter_scope(_maker(recorded[first]).inputs[1])
        return [
            x if place == first else self._record(_maker(x).inputs[0], scope, "x0") for place, x in enumerate(recorded)
        ]


class QuantizeRecordingToTrainingModifier(_Quantization):
    """Puts `quantize_linear` and `dequantize_linear` where ranges were recorded; the recorders must have been removed.

    A bias is rounded to the product of the scales of the activation and the weight.

    Args:
        functions_ranks: The number of each function, the same as when ranges were recorded.
        config: A `kinnor.utils.qnn.QATConfig`; by default one as it is made.

    Raises:
        UnsupportedError: If the configuration wants anything but `PrecisionMode.SIM_QNN`.
    """

    def __init__(self, functions_ranks: Mapping[Function, int], config: Any = None) -> None:
        super().__init__(functions_ranks, config)
        mode = self._config.precision_mode
        if getattr(mode, "name", None) != "SIM_QNN":
            raise UnsupportedError(
                f"QuantizeRecordingToTrainingModifier: expected `precision_mode` PrecisionMode.SIM_QNN, got {mode!r}"
            )

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """See `FunctionModifier.modify`."""
        taken = self._shared(f, [_dequantized(x) for x in self._quantized_inputs(f, inputs)])
        y = self._modify_as_same(f, taken)
        if is_a(f, "Sink"):
            return y
        if isinstance(y, (list, tuple)):
            return [self._quantized_output(f, place, h) for place, h in enumerate(y)]
        return self._quantized_output(f, 0, y)

    def _quantize(self, x: Variable, scale: Any, zero_point: Any) -> Variable:
        if scale is None:
            return x
        config = self._config
        how = config.round_mode, config.narrow_range, config.dtype
        made: Variable = F.quantize_linear(x, scale, zero_point, *how)
        return made

    def _levels(self, recorder: Any, x: Variable, scope: str, name: str) -> Any:
        """The scale and zero point of what was recorded; None if nothing was."""
        config = self._config
        how = {"axes": self._axes, "narrow_range": config.narrow_range, "round_method": config.pow2.value}
        with parameter_scope(scope):
            return recorder.get_scale_zeropoint(x, name=name, **how)

    def _quantized_inputs(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function, leaves of them quantized: others are where they are computed."""
        config, scope, activations = self._config, self._scope(f), self._activations(f, inputs)
        found = []
        for place, x in enumerate(inputs[:activations]):
            if x.rank == 0:
                levels = self._levels(config.recorder_activation, x, scope, f"x{place}")
                found.append(self._quantize(x, *levels))
            else:
                found.append(x)
        for place, w in enumerate(inputs[activations:]):
            found.append(self._quantize(w, *self._levels(config.recorder_weight, w, scope, f"w{place}")))
        return self._with_bias(f, found, scope)

    def _with_bias(self, f: Function, inputs: list[Variable], scope: str) -> list[Variable]:
        """The same, with the bias in units of the products."""
        if not is_a(f, *WITH_BIAS) or len(inputs) != 3 or not all(is_a(v.parent, "QuantizeLinear") for v in inputs):
            return inputs
        (_, sx, zero), (_, sw, _), (bias, *_) = (_maker(v).inputs for v in inputs)
        with parameter_scope(scope):
            scale = get_parameter_or_create("scale-b", (1,), np.reshape(sx.d * sw.d, 1), False)
            zero_point = get_parameter_or_create("zeropoint-b", (1,), np.reshape(zero.d, 1), False)
        return [*inputs[:2], bias if self._config.skip_bias else self._quantize(bias, scale, zero_point)]

    def _shared(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function, by one scale where they must have one: that of the input that is computed first."""
        if not is_a(f, *SHARING):
            return inputs
        ranked = [(x.rank, place) for place, x in enumerate(inputs) if place == 0 or is_a(x.parent, "DequantizeLinear")]
        first = min(ranked)[1]
        if not is_a(inputs[first].parent, "DequantizeLinear"):
            return [_plain(x) if place != first else x for place, x in enumerate(inputs)]
        scale, zero_point = _maker(inputs[first]).inputs[1:3]
        return [
            x
            if place == first
            else F.dequantize_linear(self._quantize(_plain(x), scale, zero_point), scale, zero_point)
            for place, x in enumerate(inputs)
        ]

    def _quantized_output(self, f: Function, place: int, h: Variable) -> Variable:
        """An output by the scale that was recorded for one of those that take it; that of a graph stays as it is."""
        for reader in f.outputs[place].function_references:
            if is_a(reader, "Sink"):
                return h
            own = [i for i, x in enumerate(reader.inputs) if x == f.outputs[place]]
            name = f"x{own[-1]}" if is_a(reader, *PAIRS) else "x0"
            scale, zero_point = self._levels(self._config.recorder_activation, h, self._scope(reader), name)
            if scale is not None:
                return self._quantize(h, scale, zero_point)
        return h


def _maker(v: Variable) -> Function:
    """The function that computes a variable, where one does."""
    f = v.parent
    assert f is not None
    return f


def _dequantized(x: Variable) -> Variable:
    """What was quantized in its own unit again, once for all that take it."""
    made = next((f.outputs[0] for f in x.function_references if is_a(f, "DequantizeLinear")), None)
    if made is not None:
        return made
    if not is_a(x.parent, "QuantizeLinear"):
        return x
    scale, zero_point = _maker(x).inputs[1:3]
    return F.dequantize_linear(x, scale, zero_point)


def _plain(x: Variable) -> Variable:
    """What was quantized, as it was before."""
    return _maker(_maker(x).inputs[0]).inputs[0] if is_a(x.parent, "DequantizeLinear") else x


def _before(f: Function) -> list[Function]:
    return [x.parent for x in f.inputs if x.parent is not None]


def _after(f: Function) -> list[Function]:
    return list(f.outputs[0].function_references)


def _meets(f: Function, types: Sequence[str], step: Any) -> bool:
    """Whether there is a function of some types on the way from a function to one end of its graph."""
    seen, ahead = set(), step(f)
    while ahead:
        g = ahead.pop()
        if is_a(g, *types):
            return True
        if g not in seen:
            seen.add(g)
            ahead += step(g)
    return False
