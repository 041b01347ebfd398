"""kinnor.compat.utils.data_source under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.data_source import *
from kinnor.compat.utils.data_source import __all__ as __all__
