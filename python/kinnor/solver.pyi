"""kinnor.solvers under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.solvers import *
from kinnor.solvers import __all__ as __all__
