"""kinnor.compat.utils.nnp_format under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.nnp_format import *
from kinnor.compat.utils.nnp_format import __all__ as __all__
