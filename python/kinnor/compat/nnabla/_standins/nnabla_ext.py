"""Placeholder for `nnabla_ext` in a spawned process. It imports `kinnor.compat.nnabla`, which replaces it."""

import sys

sys.modules.pop(__name__, None)

import kinnor.compat.nnabla  # noqa: E402, F401
