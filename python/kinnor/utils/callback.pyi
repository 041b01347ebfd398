"""kinnor.compat.utils.callback under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.callback import *
from kinnor.compat.utils.callback import __all__ as __all__
