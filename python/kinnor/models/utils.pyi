"""kinnor.compat.models.utils under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models.utils import *
from kinnor.compat.models.utils import __all__ as __all__
