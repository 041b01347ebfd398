"""kinnor.compat.models.imagenet under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.imagenet import *
from kinnor.compat.models.imagenet import __all__ as __all__
