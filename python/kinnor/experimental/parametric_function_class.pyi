"""kinnor.compat.experimental.parametric_function_class under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental.parametric_function_class import *
from kinnor.compat.experimental.parametric_function_class import __all__ as __all__
