"""kinnor.nnp under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.nnp import *
from kinnor.nnp import __all__ as __all__
