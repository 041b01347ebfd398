"""Functions with NumPy's behaviour."""

from __future__ import annotations

from kinnor.functions import dot

__all__ = ["dot"]
