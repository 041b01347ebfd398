"""What goes wrong between processes."""

from __future__ import annotations

from .._core import Error

__all__ = ["CommunicatorError"]


class CommunicatorError(Error):
    """A collective that cannot be done, or whose processes do not agree on it."""
