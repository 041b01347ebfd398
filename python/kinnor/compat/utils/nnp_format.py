"""The version of the `.nnp` format."""

from __future__ import annotations

__all__ = ["nnp_version"]


def nnp_version() -> str:
    """The version of the format that Kinnor writes.

    >>> nnp_version()
    '0.1'
    """
    return "0.1"
