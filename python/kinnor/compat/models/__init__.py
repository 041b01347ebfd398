"""Networks for common tasks, with random weights or weights from the user's files. Nothing is downloaded."""

from . import imagenet, object_detection, semantic_segmentation, utils

__all__ = ["imagenet", "object_detection", "semantic_segmentation", "utils"]
