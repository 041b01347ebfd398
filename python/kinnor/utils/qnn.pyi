"""kinnor.compat.utils.qnn under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.qnn import *
from kinnor.compat.utils.qnn import __all__ as __all__
