"""kinnor.training under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.training import *
from kinnor.training import __all__ as __all__
