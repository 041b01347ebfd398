"""kinnor.compat.utils.nnp_graph under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.nnp_graph import *
from kinnor.compat.utils.nnp_graph import __all__ as __all__
