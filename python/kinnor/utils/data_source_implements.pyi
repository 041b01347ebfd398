"""kinnor.data.data_source_implements under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.data.data_source_implements import *
from kinnor.data.data_source_implements import __all__ as __all__
