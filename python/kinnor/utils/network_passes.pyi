"""kinnor.compat.utils.network_passes under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.network_passes import *
from kinnor.compat.utils.network_passes import __all__ as __all__
