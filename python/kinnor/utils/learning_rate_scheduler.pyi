"""kinnor.learning_rate_scheduler under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.learning_rate_scheduler import *
from kinnor.learning_rate_scheduler import __all__ as __all__
