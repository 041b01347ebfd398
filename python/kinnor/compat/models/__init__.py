"""Networks for common tasks: with random weights, or with those of files that the user has. Nothing is downloaded."""

from . import imagenet, object_detection, semantic_segmentation, utils

__all__ = ["imagenet", "object_detection", "semantic_segmentation", "utils"]
