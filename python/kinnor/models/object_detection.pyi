"""kinnor.compat.models.object_detection under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.object_detection import *
from kinnor.compat.models.object_detection import __all__ as __all__
