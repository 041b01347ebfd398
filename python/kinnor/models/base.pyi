"""kinnor.compat.models.base under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.base import *
from kinnor.compat.models.base import __all__ as __all__
