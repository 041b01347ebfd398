"""Pictures of graphs and of memory: SVG by graphviz, or one HTML page that needs no network."""

from __future__ import annotations

from .picture import Picture, show

__all__ = ["Picture", "show"]
