"""Functions as NumPy has them."""

from __future__ import annotations

from kinnor.functions import dot

__all__ = ["dot"]
