"""The base class of semantic segmentation networks."""

from __future__ import annotations

from ..base import BuiltModel
from ..categories import VOC

__all__ = ["SemanticSegmentation"]


class SemanticSegmentation(BuiltModel):
    """A network that classifies each pixel of an image.

    Args:
        file: NNabla's file of the network.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If the file does not exist.
    """

    FOLDER = "semantic_segmentation"
    """The folder of NNabla's files, in `get_model_home()`."""

    @property
    def category_names(self) -> list[str]:
        """The names of classes 1 to 20. Class 0 is the background."""
        return list(VOC)
