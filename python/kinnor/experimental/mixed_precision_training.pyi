"""kinnor.compat.experimental.mixed_precision_training under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.mixed_precision_training import *
from kinnor.compat.experimental.mixed_precision_training import __all__ as __all__
