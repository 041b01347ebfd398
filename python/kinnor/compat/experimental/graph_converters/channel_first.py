"""Converts graphs on images to channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel_order import ChannelOrderModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Variable

__all__ = ["ChannelFirstModifier"]


class ChannelFirstModifier(ChannelOrderModifier):
    """Converts a graph on images of shape (n, height, width, channels) to shape (n, channels, height, width).

    Weights and statistics are transposed into new parameters, in the scopes of the old ones.

    Args:
        inputs: The images that the graph reads.
        inputs_cf: The channels-first images to use instead; by default new variables with the transposed values.

    Attributes:
        inputs_cf: The channels-first images of the converted graph.
    """

    last = False

    def __init__(self, inputs: Sequence[Variable], inputs_cf: Sequence[Variable] | None = None) -> None:
        super().__init__(inputs, inputs_cf)
        self.inputs_cf = self._turned_inputs
