"""kinnor.data.batches under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.data.batches import *
from kinnor.data.batches import __all__ as __all__
