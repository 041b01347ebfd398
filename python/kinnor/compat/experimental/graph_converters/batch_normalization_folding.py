"""Folds batch normalizations into neighbouring layers, for evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....rewrite.patterns import PRODUCTS, is_a, normalization, only_reader, registered, scaled
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...._core import Function, Variable

__all__ = [
    "AddBiasModifier",
    "BatchNormBase",
    "BatchNormalizationFoldingModifier",
    "BatchNormalizationFoldingModifierInner",
    "BatchNormalizationFoldingOppositeModifierInner",
]


class BatchNormBase:
    """Functions shared by the modifiers of batch normalizations."""

    def connect(self, f: Function, x: Variable, w: Variable, b: Variable | None) -> Any:
        """Connect the same layer with another weight and bias.

        Args:
            f: The layer.
            x: Its input.
            w: Its weight.
            b: Its bias, or None.

        Returns:
            Its output.
        """
        inputs = (x, w) if b is None else (x, w, b)
        return FunctionModifier()._call_function(f.info.type_name, inputs, f.info.args)


class AddBiasModifier(FunctionModifier, BatchNormBase):
    """Adds a bias of zeros to layers without one that are next to a batch normalization."""

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        beside = is_a(f.inputs[0].parent, "BatchNormalization") or is_a(only_reader(f), "BatchNormalization")
        if not is_a(f, *PRODUCTS) or len(inputs) == 3 or not beside:
            return None
        b = registered(self.get_parameter_scope(inputs[1]), "b", np.zeros(_bias_shape(f)))
        return self.connect(f, inputs[0], inputs[1], b)


class BatchNormalizationFoldingModifierInner(FunctionModifier, BatchNormBase):
    """Folds batch normalizations into the layers before them. No other function may read the layer's output.

    The new parameters are `w-folded` and `b-folded`, in the scope of the layer's parameters.

    Args:
        channel_last: Without effect: taken from the layers' arguments.
    """

    def __init__(self, channel_last: bool = False) -> None:
        super().__init__()

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if is_a(f, "BatchNormalization") and _is_folded(f.inputs[0].parent, f):
            return inputs[0]
        follower = only_reader(f)
        if follower is None or not _is_folded(f, follower):
            return None
        how = normalization(follower)
        how = how.repeated(int(np.prod(_bias_shape(f))) // how.scale.size)
        b = how.shift if len(f.inputs) < 3 else how.shift + how.scale * f.inputs[2].d.ravel()
        scope = self.get_parameter_scope(f.inputs[1])
        w = registered(scope, "w-folded", scaled(f, how.scale, outputs=True), f.inputs[1])
        return self.connect(f, inputs[0], w, registered(scope, "b-folded", _as_bias(f, b), f.inputs[1]))


class BatchNormalizationFoldingOppositeModifierInner(FunctionModifier, BatchNormBase):
    """Folds batch normalizations into the layers after them. No other function may read the normalization's output.

    A layer that pads its input is not folded unless the shift is zero: its padding is zero, but a
    normalized zero is not.

    Args:
        channel_last: Without effect: taken from the layers' arguments.
    """

    def __init__(self, channel_last: bool = False) -> None:
        super().__init__()

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if is_a(f, "BatchNormalization"):
            follower = only_reader(f)
            return inputs[0] if follower is not None and _absorbs(follower, f) else None
        before = f.inputs[0].parent if f.inputs else None
        if before is None or only_reader(before) != f or not _absorbs(f, before):
            return None
        how = normalization(before)
        shifted = scaled(f, how.shift, outputs=False)
        # A transposed convolution is folded only if the shift is zero: its bias stays.
        if f.info.type_name == "Affine":
            b = shifted.sum(0).ravel()
        else:
            b = shifted.reshape(shifted.shape[0], -1).sum(1) if is_a(f, "Convolution") else np.zeros(1)
        if len(f.inputs) == 3:
            b = b + f.inputs[2].d.ravel()
        scope = self.get_parameter_scope(f.inputs[1])
        w = registered(scope, "w-folded", scaled(f, how.scale, outputs=False), f.inputs[1])
        return self.connect(f, inputs[0], w, registered(scope, "b-folded", _as_bias(f, b), f.inputs[1]))


def BatchNormalizationFoldingModifier(opposite: bool = False, channel_last: bool = False) -> list[FunctionModifier]:
    """Modifiers that fold batch normalizations into the layers before them, or after them.

    Args:
        opposite: Whether to fold into the layers after them.
        channel_last: Without effect: taken from the layers' arguments.

    Returns:
        Modifiers for `GraphConverter`.

        >>> import numpy as np, kinnor as nn, kinnor.parametric_functions as PF
        >>> import kinnor.experimental.graph_converters as GC
        >>> x = nn.Variable((2, 3, 8, 8))
        >>> x.d = np.random.rand(*x.shape)
        >>> y = PF.batch_normalization(PF.convolution(x, 4, (3, 3)), batch_stat=False)
        >>> folded = GC.GraphConverter([GC.BatchNormalizationFoldingModifier()]).convert(y)
        >>> nn.forward_all([y, folded])
        >>> folded.parent.info.type_name, bool(np.allclose(y.d, folded.d, atol=1e-5))
        ('Convolution', True)
    """
    inner = BatchNormalizationFoldingOppositeModifierInner if opposite else BatchNormalizationFoldingModifierInner
    return [AddBiasModifier(), inner(channel_last)]


def _bias_shape(f: Function) -> tuple[int, ...]:
    """The shape of a layer's bias: its output channels."""
    shape = f.inputs[1].shape
    if f.info.type_name == "Affine":
        return tuple(shape[1:])
    if f.info.type_name == "Convolution":
        return (shape[0],)
    return (shape[-1 if f.info.args["channel_last"] else 1] * f.info.args["group"],)


def _as_bias(f: Function, b: NDArray[Any]) -> NDArray[Any]:
    """Values with the shape of a layer's bias."""
    return np.broadcast_to(b, (int(np.prod(_bias_shape(f))),)).reshape(_bias_shape(f))


def _channel_axis(f: Function, v: Variable) -> int:
    """The channel axis of a layer's input or output."""
    return v.ndim - 1 if f.info.args.get("channel_last", False) else int(f.info.args["base_axis"])


def _is_folded(f: Function | None, follower: Function) -> bool:
    """True if a batch normalization can be folded into the layer before it."""
    if f is None or not is_a(f, *PRODUCTS) or not is_a(follower, "BatchNormalization") or only_reader(f) != follower:
        return False
    axes = [axis % f.outputs[0].ndim for axis in follower.info.args["axes"]]
    return axes == [_channel_axis(f, f.outputs[0])]


def _absorbs(f: Function, before: Function) -> bool:
    """True if a layer can absorb the batch normalization before it."""
    if not is_a(f, *PRODUCTS) or not is_a(before, "BatchNormalization") or f.inputs[0] != before.outputs[0]:
        return False
    axes = [axis % f.inputs[0].ndim for axis in before.info.args["axes"]]
    if axes != [_channel_axis(f, f.inputs[0])]:
        return False
    padded = any(f.info.args.get("pad", ())) and f.info.type_name == "Convolution"
    # A transposed convolution sums inputs over overlapping windows. Border elements have fewer of them, so a
    # constant bias is wrong there.
    return not (padded or f.info.type_name == "Deconvolution") or not np.any(normalization(before).shift)
