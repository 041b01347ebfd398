"""kinnor.distributed.functions under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.distributed.functions import *
from kinnor.distributed.functions import __all__ as __all__
