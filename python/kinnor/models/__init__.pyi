"""kinnor.compat.models under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.models import *
from kinnor.compat.models import __all__ as __all__
