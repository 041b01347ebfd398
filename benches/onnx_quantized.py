"""Models in ONNX as onnxruntime's tools quantize them to levels of eight bits.

Knows files; measures nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime.quantization as ort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMS = ("qdq", "qoperator", "dynamic")
"""`QuantizeLinear` and `DequantizeLinear` around operators of floats; operators of levels; the same with the levels of
activations found in each call."""


LEVELS = 8 / 127
"""How far apart outputs of two runtimes may be at least, as a share of the largest number."""


class Samples(ort.CalibrationDataReader):
    """Inputs from which the levels of activations are found.

    Args:
        samples: Inputs by name.
    """

    def __init__(self, samples: Iterable[Mapping[str, Any]]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Any:
        """The next inputs; None after the last."""
        return next(self._samples, None)


def quantized(path: Path, form: str, samples: Iterable[Mapping[str, Any]]) -> Path:
    """Write a quantized model beside one of floats.

    Args:
        path: The file of floats.
        form: One of `FORMS`.
        samples: Inputs by name, from which the levels of activations are found.
    """
    made = path.with_suffix(f".{form}.onnx")
    if form == "dynamic":
        ort.quantize_dynamic(path, made)
    else:
        kind = ort.QuantFormat.QDQ if form == "qdq" else ort.QuantFormat.QOperator
        ort.quantize_static(path, made, Samples(samples), quant_format=kind)
    return made


def tolerances(wanted: Iterable[Any], of_floats: Iterable[Any]) -> list[float]:
    """How far each output of a quantized model may be from that of another runtime, as a share of the largest number.

    Where a rounding falls the other way, later functions make more of it: half of what quantization itself changes is
    not told apart.

    Args:
        wanted: The outputs of the quantized model.
        of_floats: Those of the model of floats.
    """
    pairs = zip(wanted, of_floats, strict=True)
    return [max(LEVELS, np.abs(a - b).max() / (2 * max(np.abs(a).max(), 1))) for a, b in pairs]
