"""kinnor.compat.utils.factorization under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.factorization import *
from kinnor.compat.utils.factorization import __all__ as __all__
