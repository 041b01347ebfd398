"""Networks that say of each pixel what it belongs to."""

from .base import SemanticSegmentation
from .deeplabv3plus import DeepLabV3plus

__all__ = ["DeepLabV3plus", "SemanticSegmentation"]
