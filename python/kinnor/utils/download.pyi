"""kinnor.data.download under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.data.download import *
from kinnor.data.download import __all__ as __all__
