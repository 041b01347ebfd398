"""Stands for NNabla's extensions in a new process until `kinnor.compat.nnabla` has put its names into place."""

import sys

sys.modules.pop(__name__, None)

import kinnor.compat.nnabla  # noqa: E402, F401
