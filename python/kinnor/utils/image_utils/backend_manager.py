"""The backend that reads and writes images."""

from __future__ import annotations

from .backend_events.pil_backend import PilBackend

__all__ = ["ImageUtilsBackendManager", "backend_manager"]

ImageUtilsBackendManager = PilBackend

backend_manager = ImageUtilsBackendManager()
"""The one that this program uses."""
