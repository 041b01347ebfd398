"""kinnor.compat.utils.create_cache under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.create_cache import *
from kinnor.compat.utils.create_cache import __all__ as __all__
