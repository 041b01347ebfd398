"""kinnor.distributed under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.distributed import *
from kinnor.distributed import __all__ as __all__
