"""kinnor.compat.experimental.parametric_function_classes under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.parametric_function_classes import *
from kinnor.compat.experimental.parametric_function_classes import __all__ as __all__
