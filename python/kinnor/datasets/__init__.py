"""Data sets: handwritten digits, included in the package, and a reader of IDX files."""

from .digits import digits
from .idx import IdxError, read_idx

__all__ = ["IdxError", "digits", "read_idx"]
