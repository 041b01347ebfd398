"""The version of the layout of `.nnp` files."""

from __future__ import annotations

__all__ = ["nnp_version"]


def nnp_version() -> str:
    """The version that is written.

    >>> nnp_version()
    '0.1'
    """
    return "0.1"
