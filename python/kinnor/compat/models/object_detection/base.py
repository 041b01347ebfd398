"""The base class of object detection networks."""

from __future__ import annotations

from ..base import BuiltModel
from ..categories import CATEGORIES

__all__ = ["ObjectDetection"]


class ObjectDetection(BuiltModel):
    """A network that detects objects in images.

    Args:
        file: NNabla's file of the network.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If the file does not exist.
    """

    FOLDER = "object_detection"
    """The folder of NNabla's files, in `get_model_home()`."""
    dataset = "voc"

    def get_category_names(self) -> list[str]:
        """The names of the classes, in the order of their numbers."""
        return list(CATEGORIES[self.dataset])

    @property
    def category_names(self) -> list[str]:
        """The names of the classes, in the order of their numbers."""
        return self.get_category_names()
