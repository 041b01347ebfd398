"""kinnor.distributed.parametric_functions under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.distributed.parametric_functions import *
from kinnor.distributed.parametric_functions import __all__ as __all__
