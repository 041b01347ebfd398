"""Functions that can be written as ONNX: one row for each type, in a table for each subject."""

from __future__ import annotations

from typing import Any

from .arithmetic import ARITHMETIC
from .arrays import ARRAYS
from .fused import BINARY, FUSED
from .layers import LAYERS, RECURRENT

__all__ = ["EXPORTS", "EXPORT_SUBJECTS"]

EXPORT_SUBJECTS: dict[str, dict[str, Any]] = {
    "Elements, products and losses": ARITHMETIC,
    "Arrays": ARRAYS,
    "Layers": LAYERS | BINARY | FUSED,
    "Recurrent": RECURRENT,
}
"""Tables by subject."""

EXPORTS: dict[str, Any] = {kind: row for table in EXPORT_SUBJECTS.values() for kind, row in table.items()}
"""All rows, by the type of the function."""
