"""kinnor.compat.utils.profiler under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.profiler import *
from kinnor.compat.utils.profiler import __all__ as __all__
