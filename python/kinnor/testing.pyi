"""kinnor.compat.testing under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.testing import *
from kinnor.compat.testing import __all__ as __all__
