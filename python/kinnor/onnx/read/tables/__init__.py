"""Supported ONNX operators: one row for each, in a table for each subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arithmetic import ARITHMETIC
from .attention import TRANSFORMERS
from .classical import CLASSICAL
from .computed import COMPUTED
from .convolutions import CONVOLUTIONS
from .loops import LOOPS
from .normalization import NORMALIZATION
from .optimized import OPTIMIZED
from .quantization import QUANTIZATION
from .recurrent import RECURRENT
from .reductions import REDUCTIONS
from .sequences import SEQUENCES
from .shapes import SHAPES
from .transforms import TRANSFORMS
from .trees import TREES
from .vision import VISION

if TYPE_CHECKING:
    from ..values import Row

__all__ = ["SUBJECTS", "TABLE"]

SUBJECTS: dict[str, dict[tuple[str, str], Row]] = {
    "Arithmetic": ARITHMETIC,
    "Shapes": SHAPES,
    "Convolutions and pooling": CONVOLUTIONS,
    "Reductions": REDUCTIONS,
    "Normalization": NORMALIZATION,
    "Recurrent": RECURRENT,
    "Quantization": QUANTIZATION,
    "Images and detection": VISION,
    "Fused by ONNX Runtime": OPTIMIZED,
    "Transformers": TRANSFORMERS,
    "Trees": TREES,
    "Classical models": CLASSICAL,
    "Loops": LOOPS,
    "Sequences and optional values": SEQUENCES,
    "Fourier transforms": TRANSFORMS,
    "Computed while the graph is built": COMPUTED,
}
"""Tables by subject."""

TABLE: dict[tuple[str, str], Row] = {key: row for table in SUBJECTS.values() for key, row in table.items()}
"""All rows, by domain and name."""
