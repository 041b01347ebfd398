"""The module `nnabla.variable`: `Variable` and `Context`."""

from __future__ import annotations

from kinnor import Context, Variable

__all__ = ["Context", "Variable"]
