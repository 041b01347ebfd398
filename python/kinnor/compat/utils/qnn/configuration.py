"""The configuration of quantization-aware training."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from .ranges import MaxMvaRecorderCallback, MinMaxMinMaxRecorderCallback

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "PrecisionMode",
    "QATConfig",
    "QATTensorRTConfig",
    "QNNState",
    "qat_default_config",
]


class PrecisionMode(Enum):
    """The replacement of functions. Only `SIM_QNN` is implemented: simulated quantization."""

    QNN = 0
    SIM_QNN = 1
    MIXED_QNN = 2


class QNNState(Enum):
    """The phase of quantization-aware training."""

    NON_QNN = 0
    RECORDING = 1
    TRAINING = 2
    DEPLOYMENT = 3


class QATConfig:
    """Configuration of quantization-aware training. Set attributes on an object to change the defaults.

    Attributes:
        ext_name: NNabla's extension; without effect.
        zero_point: Whether the zero point may differ from 0; without effect, it is 0.
        dtype: Type of quantized values.
        precision_mode: The replacement of functions.
        channel_last: Whether the channels are the last axis.
        channel_wise: Whether each channel has a scale of its own; without effect, there is one scale.
        niter_to_recording: The step at which recording starts, 0 or more.
        niter_to_training: The step at which training with quantized values starts, after the start of recording.
        pow2: Rounding of scales to powers of two.
        narrow_range: Whether the smallest quantized value is -127 instead of -128.
        round_mode: Rounding of values, as in `quantize_linear`.
        bn_folding: Whether to fold batch normalizations into neighbouring layers.
        bn_self_folding: Whether to replace the other batch normalizations by a product and a sum.
        recorder_weight: The recorder for parameters.
        recorder_activation: The recorder for activations.
        record_layers: Function types to record; empty for all.
        recorder_position: Whether to record outputs, too.
        skip_inputs_layers: Function types not to quantize if no function of these types comes before.
        skip_outputs_layers: Function types not to quantize if no function of these types follows.
        learning_rate_scale: Factor of the learning rate when training with quantized values starts.
        skip_bias: Whether to leave biases unquantized.
    """

    class RoundingMethod(Enum):
        """Rounding of a scale to a power of two."""

        CEIL = "CEIL"
        ROUND = "ROUND"
        FLOOR = "FLOOR"
        NOTROUND = "NOTROUND"

    class RecorderPosition(Enum):
        """The positions of recorders: before functions, or before and after functions."""

        BEFORE = 0
        BOTH = 1

    def __init__(self) -> None:
        for name in ("record_layers", "skip_inputs_layers", "skip_outputs_layers"):
            setattr(self, name, list(getattr(type(self), name)))  # copies, so that changes do not affect the class

    ext_name: str = "cpu"
    zero_point: bool = False
    dtype: Any = np.int8
    precision_mode: PrecisionMode = PrecisionMode.SIM_QNN
    channel_last: bool = False
    channel_wise: bool = False
    niter_to_recording: int = 0
    niter_to_training: int = -1
    pow2: RoundingMethod = RoundingMethod.ROUND
    narrow_range: bool = False
    round_mode: str = "HALF_TO_EVEN"
    bn_folding: bool = False
    bn_self_folding: bool = False
    recorder_weight: Any = MinMaxMinMaxRecorderCallback
    recorder_activation: Any = MaxMvaRecorderCallback
    record_layers: Sequence[str] = ()
    recorder_position: RecorderPosition = RecorderPosition.BEFORE
    skip_inputs_layers: Sequence[str] = ("Convolution", "Deconvolution")
    skip_outputs_layers: Sequence[str] = ("Affine",)
    learning_rate_scale: float = 0.1
    skip_bias: bool = False


class QATTensorRTConfig(QATConfig):
    """A configuration that TensorRT can run: folds batch normalizations, records products and `relu`."""

    bn_folding = True
    bn_self_folding = True
    record_layers = ("Convolution", "Deconvolution", "Affine", "BatchMatmul", "ReLU")
    record_position = QATConfig.RecorderPosition.BEFORE


qat_default_config = QATTensorRTConfig()
"""The default configuration of schedulers. Set its `niter_to_training` before use."""
