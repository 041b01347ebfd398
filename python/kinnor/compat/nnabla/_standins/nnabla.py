"""Placeholder for `nnabla` in a spawned process. It imports `kinnor.compat.nnabla`, which replaces it."""

import sys

sys.modules.pop(__name__, None)  # Otherwise `install` would take this module for NNabla itself.

import kinnor.compat.nnabla  # noqa: E402, F401
