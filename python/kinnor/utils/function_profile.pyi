"""kinnor.compat.utils.function_profile under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.function_profile import *
from kinnor.compat.utils.function_profile import __all__ as __all__
