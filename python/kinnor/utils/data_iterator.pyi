"""kinnor.data.data_iterator under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.data.data_iterator import *
from kinnor.data.data_iterator import __all__ as __all__
