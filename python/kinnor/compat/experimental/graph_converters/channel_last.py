"""Converts graphs on images to channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel_order import ChannelOrderModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Variable

__all__ = ["ChannelLastModifier"]


class ChannelLastModifier(ChannelOrderModifier):
    """Converts a graph on images of shape (n, channels, height, width) to shape (n, height, width, channels).

    Weights and statistics are transposed into new parameters, in the scopes of the old ones.

    Args:
        inputs: The images that the graph reads.
        inputs_cl: The channels-last images to use instead; by default new variables with the transposed values.

    Attributes:
        inputs_cl: The channels-last images of the converted graph.
    """

    last = True

    def __init__(self, inputs: Sequence[Variable], inputs_cl: Sequence[Variable] | None = None) -> None:
        super().__init__(inputs, inputs_cl)
        self.inputs_cl = self._turned_inputs
