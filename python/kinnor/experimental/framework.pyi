"""kinnor.compat.experimental.framework under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.framework import *
from kinnor.compat.experimental.framework import __all__ as __all__
