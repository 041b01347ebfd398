"""Rewrites graphs for quantization-aware training: first inserts recorders of ranges, then quantization."""

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
"""Function types whose two inputs are both activations."""
SHARING = ("Add2", "Concatenate")
"""Function types whose inputs share one scale."""
WITH_BIAS = ("Affine", "Convolution", "Deconvolution", "DepthwiseConvolution", "DepthwiseDeconvolution")
"""Function types whose third input is a bias, quantized with the product of the scales of the first two."""


class _Quantization(FunctionModifier):
    """The base class of both modifiers: numbers the functions and tells activations from parameters."""

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
        """The scope of the recorded ranges of a function."""
        return f"{f.info.type_name}-{self.get_function_rank(f)}"

    @staticmethod
    def _activations(f: Function, inputs: Sequence[Variable]) -> int:
        """The number of inputs that are activations; parameters follow them."""
        kind = f.info.type_name
        return len(inputs) if kind in ("Concatenate", "Stack") else 2 if kind in PAIRS else 1


class QuantizeNonQNNToRecordingModifier(_Quantization):
    """Inserts recorders of ranges before functions, or also after them.

    A recorder stores ranges as parameters, in a scope named after the function's type and number. `Convolution-3/M-x0`
    is the range of the first activation, `Convolution-3/M-w0` of the weight. `Add2` and `Concatenate` record one range
    for all their inputs.

    Args:
        functions_ranks: The number of each function, as `kinnor.utils.qnn.FunctionsRankRecorder` finds it.
        config: A `kinnor.utils.qnn.QATConfig`; by default a new one.
        training: Whether runs record. Otherwise the recorders only pass their input on.

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
        """True if the inputs of a function are recorded.

        Args:
            f: The function.

        Returns:
            False for functions that the configuration excludes, and for batch normalizations.
        """
        chosen = self._config.record_layers
        if is_a(f, "Sink", "BatchNormalization") or (chosen and not is_a(f, *chosen)):
            return False
        first, last = self._config.skip_inputs_layers, self._config.skip_outputs_layers
        skipped = (is_a(f, *first) and not _leads_to(f, first, _producers)) or (
            is_a(f, *last) and not _leads_to(f, last, _consumers)
        )
        return not skipped

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if not self.check(f):
            return None
        y = self._modify_as_same(f, self._shared(f, inputs, self._recorded(f, inputs)))
        if self._config.recorder_position != self._config.RecorderPosition.BOTH:
            return y
        outputs = y if isinstance(y, (list, tuple)) else [y]
        after = [self._recorded_for(f, place, h) for place, h in enumerate(outputs)]
        return after if isinstance(y, (list, tuple)) else after[0]

    def _recorded_for(self, f: Function, place: int, h: Variable) -> Variable:
        """Insert a recorder after an output, under the name of the function that reads it first."""
        readers = f.outputs[place].function_references
        return self._record(h, self._scope(readers[0]), "x0") if readers else h

    def _record(self, x: Variable, scope: str, name: str, weight: bool = False) -> Variable:
        """Insert a recorder after a variable."""
        recorder = self._config.recorder_weight if weight else self._config.recorder_activation
        with parameter_scope(scope):
            made: Variable = recorder()(x, axes=self._axes, training=self._training, name=name)
        return made

    def _recorded(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function behind recorders. An activation that already has a recorder keeps it."""
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
        """Recorders of the inputs of a function that share the range of the input that is computed first."""
        if not is_a(f, *SHARING):
            return recorded
        ranks = [inputs[0].rank, *(x.rank for x in recorded[1:])]
        first = ranks.index(min(ranks))
        scope = self.get_parameter_scope(_parent_of(recorded[first]).inputs[1])
        return [
            x if place == first else self._record(_parent_of(x).inputs[0], scope, "x0")
            for place, x in enumerate(recorded)
        ]


class QuantizeRecordingToTrainingModifier(_Quantization):
    """Inserts `quantize_linear` and `dequantize_linear` where ranges were recorded. Remove the recorders before.

    A bias is quantized with the product of the scales of the activation and the weight.

    Args:
        functions_ranks: The number of each function, the same as when ranges were recorded.
        config: A `kinnor.utils.qnn.QATConfig`; by default a new one.

    Raises:
        UnsupportedError: If `precision_mode` is not `PrecisionMode.SIM_QNN`.
    """

    def __init__(self, functions_ranks: Mapping[Function, int], config: Any = None) -> None:
        super().__init__(functions_ranks, config)
        mode = self._config.precision_mode
        if getattr(mode, "name", None) != "SIM_QNN":
            raise UnsupportedError(
                f"QuantizeRecordingToTrainingModifier: expected `precision_mode` PrecisionMode.SIM_QNN, got {mode!r}"
            )

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        taken = self._shared(f, [_dequantized(x) for x in self._quantized_inputs(f, inputs)])
        y = self._modify_as_same(f, taken)
        if is_a(f, "Sink"):
            return y
        if isinstance(y, (list, tuple)):
            return [self._quantized_output(f, place, h) for place, h in enumerate(y)]
        return self._quantized_output(f, 0, y)

    def _quantize(self, x: Variable, scale: Any, zero_point: Any) -> Variable:
        """Quantize a variable; unchanged if `scale` is None."""
        if scale is None:
            return x
        config = self._config
        how = config.round_mode, config.narrow_range, config.dtype
        made: Variable = F.quantize_linear(x, scale, zero_point, *how)
        return made

    def _levels(self, recorder: Any, x: Variable, scope: str, name: str) -> Any:
        """Scale and zero point of a recorded range; None if no range was recorded."""
        config = self._config
        how = {"axes": self._axes, "narrow_range": config.narrow_range, "round_method": config.pow2.value}
        with parameter_scope(scope):
            return recorder.get_scale_zeropoint(x, name=name, **how)

    def _quantized_inputs(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function with leaves and parameters quantized. Other inputs are quantized as outputs."""
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
        """The inputs with the bias quantized by the product of the scales."""
        if not is_a(f, *WITH_BIAS) or len(inputs) != 3 or not all(is_a(v.parent, "QuantizeLinear") for v in inputs):
            return inputs
        (_, sx, zero), (_, sw, _), (bias, *_) = (_parent_of(v).inputs for v in inputs)
        with parameter_scope(scope):
            scale = get_parameter_or_create("scale-b", (1,), np.reshape(sx.d * sw.d, 1), False)
            zero_point = get_parameter_or_create("zeropoint-b", (1,), np.reshape(zero.d, 1), False)
        return [*inputs[:2], bias if self._config.skip_bias else self._quantize(bias, scale, zero_point)]

    def _shared(self, f: Function, inputs: list[Variable]) -> list[Variable]:
        """The inputs of a function, quantized with the scale of the input that is computed first if they share one."""
        if not is_a(f, *SHARING):
            return inputs
        ranked = [(x.rank, place) for place, x in enumerate(inputs) if place == 0 or is_a(x.parent, "DequantizeLinear")]
        first = min(ranked)[1]
        if not is_a(inputs[first].parent, "DequantizeLinear"):
            return [_unquantized(x) if place != first else x for place, x in enumerate(inputs)]
        scale, zero_point = _parent_of(inputs[first]).inputs[1:3]
        return [
            x
            if place == first
            else F.dequantize_linear(self._quantize(_unquantized(x), scale, zero_point), scale, zero_point)
            for place, x in enumerate(inputs)
        ]

    def _quantized_output(self, f: Function, place: int, h: Variable) -> Variable:
        """An output quantized with the range that a reader of it recorded. Outputs of the graph stay as they are."""
        for reader in f.outputs[place].function_references:
            if is_a(reader, "Sink"):
                return h
            own = [i for i, x in enumerate(reader.inputs) if x == f.outputs[place]]
            name = f"x{own[-1]}" if is_a(reader, *PAIRS) else "x0"
            scale, zero_point = self._levels(self._config.recorder_activation, h, self._scope(reader), name)
            if scale is not None:
                return self._quantize(h, scale, zero_point)
        return h


def _parent_of(v: Variable) -> Function:
    """The function that computes a variable, which must have one."""
    f = v.parent
    assert f is not None
    return f


def _dequantized(x: Variable) -> Variable:
    """The dequantized value of a quantized variable. All its readers share one `dequantize_linear`."""
    made = next((f.outputs[0] for f in x.function_references if is_a(f, "DequantizeLinear")), None)
    if made is not None:
        return made
    if not is_a(x.parent, "QuantizeLinear"):
        return x
    scale, zero_point = _parent_of(x).inputs[1:3]
    return F.dequantize_linear(x, scale, zero_point)


def _unquantized(x: Variable) -> Variable:
    """The variable before `quantize_linear` and `dequantize_linear`, if it went through them."""
    return _parent_of(_parent_of(x).inputs[0]).inputs[0] if is_a(x.parent, "DequantizeLinear") else x


def _producers(f: Function) -> list[Function]:
    """The functions that compute the inputs of a function."""
    return [x.parent for x in f.inputs if x.parent is not None]


def _consumers(f: Function) -> list[Function]:
    """The functions that read the first output of a function."""
    return list(f.outputs[0].function_references)


def _leads_to(f: Function, types: Sequence[str], step: Any) -> bool:
    """True if a path from a function, followed by `step`, leads to a function of one of these types."""
    seen, ahead = set(), step(f)
    while ahead:
        g = ahead.pop()
        if is_a(g, *types):
            return True
        if g not in seen:
            seen.add(g)
            ahead += step(g)
    return False
