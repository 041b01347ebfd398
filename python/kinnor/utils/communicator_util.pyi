"""kinnor.compat.utils.communicator_util under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.communicator_util import *
from kinnor.compat.utils.communicator_util import __all__ as __all__
