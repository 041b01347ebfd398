"""kinnor.dlpack under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.dlpack import *
from kinnor.dlpack import __all__ as __all__
