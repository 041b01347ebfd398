"""kinnor.compat.utils.py23_compatible under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.py23_compatible import *
from kinnor.compat.utils.py23_compatible import __all__ as __all__
