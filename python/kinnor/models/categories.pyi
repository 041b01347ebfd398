"""kinnor.compat.models.categories under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.categories import *
from kinnor.compat.models.categories import __all__ as __all__
