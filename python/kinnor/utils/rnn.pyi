"""kinnor.compat.utils.rnn under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.rnn import *
from kinnor.compat.utils.rnn import __all__ as __all__
