"""Quantization-aware training: records ranges first, then trains with quantized values."""

from .configuration import (
    PrecisionMode,
    QATConfig,
    QATTensorRTConfig,
    QNNState,
    qat_default_config,
)
from .ranges import (
    AbsMaxRecorderCallback,
    MaxMaxRecorderCallback,
    MaxMvaRecorderCallback,
    MinMaxMinMaxRecorderCallback,
    MinMaxMvaRecorderCallback,
)
from .recorders import (
    AbsMaxRecorder,
    MaxMaxRecorder,
    MaxMvaRecorder,
    MinMaxMinMaxRecorder,
    MinMaxMvaRecorder,
    abs_max_recorder,
    max_max_recorder,
    max_mva_recorder,
    minmax_minmax_recorder,
    minmax_mva_recorder,
)
from .scheduler import (
    FunctionsRankRecorder,
    QATScheduler,
)

__all__ = [
    "AbsMaxRecorder",
    "AbsMaxRecorderCallback",
    "FunctionsRankRecorder",
    "MaxMaxRecorder",
    "MaxMaxRecorderCallback",
    "MaxMvaRecorder",
    "MaxMvaRecorderCallback",
    "MinMaxMinMaxRecorder",
    "MinMaxMinMaxRecorderCallback",
    "MinMaxMvaRecorder",
    "MinMaxMvaRecorderCallback",
    "PrecisionMode",
    "QATConfig",
    "QATScheduler",
    "QATTensorRTConfig",
    "QNNState",
    "abs_max_recorder",
    "max_max_recorder",
    "max_mva_recorder",
    "minmax_minmax_recorder",
    "minmax_mva_recorder",
    "qat_default_config",
]
