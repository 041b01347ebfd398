"""Graphs on images with the channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel_order import ChannelOrderModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Variable

__all__ = ["ChannelLastModifier"]


class ChannelLastModifier(ChannelOrderModifier):
    """Turns a graph on images of shape (n, channels, height, width) to one on (n, height, width, channels).

    Weights and statistics are turned as well, into new parameters in the scopes of the old ones.

    Args:
        inputs: The images that the graph takes.
        inputs_cl: What takes their places; by default variables with their values.

    Attributes:
        inputs_cl: What takes their places.
    """

    last = True

    def __init__(self, inputs: Sequence[Variable], inputs_cl: Sequence[Variable] | None = None) -> None:
        super().__init__(inputs, inputs_cl)
        self.inputs_cl = self._turned_inputs
