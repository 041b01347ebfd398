"""The file formats that the converter reads and writes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Supported", "extensions", "formats"]


class Supported(NamedTuple):
    """Names of formats or extensions for reading and writing.

    Attributes:
        import_name: Names for reading.
        export_name: Names for writing.
    """

    import_name: list[str]
    export_name: list[str]


extensions = Supported([".nnp", ".onnx"], [".nnp", ".onnx"])
"""The supported extensions of files."""

formats = Supported(["NNP", "ONNX"], ["NNP", "ONNX"])
"""The supported formats."""
