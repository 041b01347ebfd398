"""kinnor.compat.utils.inspection under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.inspection import *
from kinnor.compat.utils.inspection import __all__ as __all__
