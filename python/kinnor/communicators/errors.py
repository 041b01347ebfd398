"""The error class of collectives."""

from __future__ import annotations

from .._core import Error

__all__ = ["CommunicatorError"]


class CommunicatorError(Error):
    """A collective failed, or the processes do not agree on it."""
