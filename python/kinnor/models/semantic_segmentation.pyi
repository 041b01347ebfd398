"""kinnor.compat.models.semantic_segmentation under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.semantic_segmentation import *
from kinnor.compat.models.semantic_segmentation import __all__ as __all__
