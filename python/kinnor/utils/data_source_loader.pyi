"""kinnor.data.data_source_loader under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.data.data_source_loader import *
from kinnor.data.data_source_loader import __all__ as __all__
