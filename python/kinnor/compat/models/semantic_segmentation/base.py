"""What networks that divide images have in common."""

from __future__ import annotations

from ..base import BuiltModel
from ..categories import VOC

__all__ = ["SemanticSegmentation"]


class SemanticSegmentation(BuiltModel):
    """A network that says of each pixel what it belongs to.

    Args:
        file: NNabla's file of the network.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If there is no such file.
    """

    FOLDER = "semantic_segmentation"

    @property
    def category_names(self) -> list[str]:
        """The names of the classes 1 to 20; class 0 is what is behind."""
        return list(VOC)
