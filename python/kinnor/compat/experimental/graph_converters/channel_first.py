"""Graphs on images with the channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel_order import ChannelOrderModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Variable

__all__ = ["ChannelFirstModifier"]


class ChannelFirstModifier(ChannelOrderModifier):
    """Turns a graph on images of shape (n, height, width, channels) to one on (n, channels, height, width).

    Weights and statistics are turned as well, into new parameters in the scopes of the old ones.

    Args:
        inputs: The images that the graph takes.
        inputs_cf: What takes their places; by default variables with their values.

    Attributes:
        inputs_cf: What takes their places.
    """

    last = False

    def __init__(self, inputs: Sequence[Variable], inputs_cf: Sequence[Variable] | None = None) -> None:
        super().__init__(inputs, inputs_cf)
        self.inputs_cf = self._turned_inputs
