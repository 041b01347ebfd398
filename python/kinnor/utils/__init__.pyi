"""kinnor.compat.utils under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils import *
