"""Graphs for prediction whose layers lie between levels of 8 bits: they compute with the levels, not with numbers."""

from .converting import IntegerLayers

__all__ = ["IntegerLayers"]
