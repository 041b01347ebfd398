"""Stands for NNabla in a new process until `kinnor.compat.nnabla` has put its names into place."""

import sys

sys.modules.pop(__name__, None)  # Otherwise this module would be taken for NNabla itself.

import kinnor.compat.nnabla  # noqa: E402, F401
