"""Data sets: one that comes with the package, and readers for files of others."""

from .digits import digits
from .idx import IdxError, read_idx

__all__ = ["IdxError", "digits", "read_idx"]
