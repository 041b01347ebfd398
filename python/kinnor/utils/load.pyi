"""kinnor.nnp.project_load under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.nnp.project_load import *
from kinnor.nnp.project_load import __all__ as __all__
