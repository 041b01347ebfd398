"""Pictures of graphs and of memory use, as SVG drawn by graphviz or as a self-contained HTML page."""

from __future__ import annotations

from .picture import Picture, show

__all__ = ["Picture", "show"]
