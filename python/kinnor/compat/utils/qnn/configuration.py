"""When and how a network is prepared for numbers of eight bits."""

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
    """What takes the place of functions; `SIM_QNN` is there."""

    QNN = 0
    SIM_QNN = 1
    MIXED_QNN = 2


class QNNState(Enum):
    """How far a network is on its way."""

    NON_QNN = 0
    RECORDING = 1
    TRAINING = 2
    DEPLOYMENT = 3


class QATConfig:
    """How a network is prepared for numbers of eight bits. What differs from it is set on an object.

    Attributes:
        ext_name: The extension that NNabla runs on; without effect.
        zero_point: Whether zero may be another level than 0; without effect, it is 0.
        dtype: Type of the levels.
        precision_mode: What takes the place of functions.
        channel_last: Whether channels are the last axis.
        channel_wise: Whether each channel has a scale; without effect, a scale is one number.
        niter_to_recording: The step that recording starts at, 0 or more.
        niter_to_training: The step that learning with rounded numbers starts at, after recording started.
        pow2: How scales become powers of two.
        narrow_range: Whether the least level is -127 instead of -128.
        round_mode: How levels are rounded, as of `quantize_linear`.
        bn_folding: Whether batch normalizations are folded into the layers beside them.
        bn_self_folding: Whether the others become a product and a sum.
        recorder_weight: Records ranges of parameters.
        recorder_activation: Records ranges of activations.
        record_layers: Types of functions that are recorded; empty for all.
        recorder_position: Whether also outputs are recorded.
        skip_inputs_layers: Types that are left alone where none of them comes before.
        skip_outputs_layers: Types that are left alone where none of them follows.
        learning_rate_scale: What the learning rate is multiplied with when learning with rounded numbers starts.
        skip_bias: Whether biases are left alone.
    """

    class RoundingMethod(Enum):
        """How a scale becomes a power of two."""

        CEIL = "CEIL"
        ROUND = "ROUND"
        FLOOR = "FLOOR"
        NOTROUND = "NOTROUND"

    class RecorderPosition(Enum):
        """Where ranges are recorded: before functions, or before and after them."""

        BEFORE = 0
        BOTH = 1

    def __init__(self) -> None:
        for name in ("record_layers", "skip_inputs_layers", "skip_outputs_layers"):
            setattr(self, name, list(getattr(type(self), name)))  # to be added to without changing others

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
    """What TensorRT can run: batch normalizations folded, products and `relu` recorded."""

    bn_folding = True
    bn_self_folding = True
    record_layers = ("Convolution", "Deconvolution", "Affine", "BatchMatmul", "ReLU")
    record_position = QATConfig.RecorderPosition.BEFORE


qat_default_config = QATTensorRTConfig()
"""The configuration of schedulers that are given none; its `niter_to_training` has to be set."""
