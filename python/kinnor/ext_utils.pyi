"""kinnor.compat.ext_utils under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.ext_utils import *
from kinnor.compat.ext_utils import __all__ as __all__
