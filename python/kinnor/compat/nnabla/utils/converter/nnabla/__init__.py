"""Files of NNabla as one message with all parameters: read, written, and with repetitions written out."""

from __future__ import annotations

from .expander import NnpExpander
from .exporter import NnpExporter
from .importer import NnpImporter

__all__ = ["NnpExpander", "NnpExporter", "NnpImporter"]
