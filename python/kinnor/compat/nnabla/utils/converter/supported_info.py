"""Which files the converter reads and writes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Supported", "extensions", "formats"]


class Supported(NamedTuple):
    """Names by direction.

    Attributes:
        import_name: What can be read.
        export_name: What can be written.
    """

    import_name: list[str]
    export_name: list[str]


extensions = Supported([".nnp", ".onnx"], [".nnp", ".onnx"])
"""Extensions of files."""

formats = Supported(["NNP", "ONNX"], ["NNP", "ONNX"])
"""Formats."""
