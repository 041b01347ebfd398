"""Reading, writing and unrolling of NNabla's files, as one message with all parameters."""

from __future__ import annotations

from .expander import NnpExpander
from .exporter import NnpExporter
from .importer import NnpImporter

__all__ = ["NnpExpander", "NnpExporter", "NnpImporter"]
