"""kinnor.compat.utils.save under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.save import *
from kinnor.compat.utils.save import __all__ as __all__
