"""kinnor.compat.utils.nnabla_pb2 under NNabla's path."""

# Written by `make stubs`; do not edit.

from kinnor.compat.utils.nnabla_pb2 import *
from kinnor.compat.utils.nnabla_pb2 import __all__ as __all__
