"""kinnor.compat.experimental under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.experimental import *
