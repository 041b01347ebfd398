"""Semantic segmentation networks."""

from .base import SemanticSegmentation
from .deeplabv3plus import DeepLabV3plus

__all__ = ["DeepLabV3plus", "SemanticSegmentation"]
