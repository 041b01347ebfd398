"""kinnor.compat.experimental.graph_converters under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.graph_converters import *
from kinnor.compat.experimental.graph_converters import __all__ as __all__
