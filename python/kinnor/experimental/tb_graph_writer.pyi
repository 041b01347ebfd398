"""kinnor.tensorboard under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.tensorboard import *
from kinnor.tensorboard import __all__ as __all__
