"""kinnor.compat.utils.progress under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.progress import *
from kinnor.compat.utils.progress import __all__ as __all__
