"""Quantizes ONNX models to 8 bits with onnxruntime's tools.

Reads and writes files. Does not measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime.quantization as ort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMS = ("qdq", "qoperator", "dynamic")
"""Float operators between `QuantizeLinear` and `DequantizeLinear`; quantized operators; quantized operators with
activation ranges found in each call."""


LEVELS = 8 / 127
"""Minimum tolerance between two runtimes, relative to the largest number."""


class Samples(ort.CalibrationDataReader):
    """Calibration inputs for the ranges of activations.

    Args:
        samples: Inputs by name.
    """

    def __init__(self, samples: Iterable[Mapping[str, Any]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Any:
        """Returns the next inputs, None after the last."""
        return next(self._samples, None)


def quantized(path: Path, form: str, samples: Iterable[Mapping[str, Any]]) -> Path:
    """Writes a quantized model next to a float model. Returns its path.

    Args:
        path: The file of the float model.
        form: One of `FORMS`.
        samples: Calibration inputs by name.
    """
    made = path.with_suffix(f".{form}.onnx")
    if form == "dynamic":
        ort.quantize_dynamic(path, made)
    else:
        kind = ort.QuantFormat.QDQ if form == "qdq" else ort.QuantFormat.QOperator
        ort.quantize_static(path, made, Samples(samples), quant_format=kind)
    return made


def moved(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns inputs whose real numbers are larger by one part in a million."""
    return {name: x * np.float32(1 + 1e-6) if x.dtype == np.float32 else x for name, x in given.items()}


def tolerances(wanted: Iterable[Any], of_floats: Iterable[Any], of_moved: Iterable[Any]) -> list[float]:
    """Returns the tolerance of each output of a quantized model between runtimes, relative to the largest number.

    A tie that rounds the other way is amplified by later functions. So the tolerance is half of the error of
    quantization itself, or twice the change of one runtime's outputs if its inputs change a little.

    Args:
        wanted: Outputs of the quantized model.
        of_floats: Outputs of the float model.
        of_moved: Outputs of the quantized model for inputs from `moved`.
    """
    found = []
    for a, b, c in zip(wanted, of_floats, of_moved, strict=True):
        largest = max(np.abs(a).max(), 1)
        found.append(max(LEVELS, np.abs(a - b).max() / (2 * largest), 2 * np.abs(a - c).max() / largest))
    return found
