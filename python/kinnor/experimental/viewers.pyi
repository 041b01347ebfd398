"""kinnor.compat.experimental.viewers under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.viewers import *
from kinnor.compat.experimental.viewers import __all__ as __all__
