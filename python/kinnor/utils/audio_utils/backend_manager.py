"""The backend that reads and writes sounds: soundfile."""

from __future__ import annotations

from importlib.util import find_spec

from ..._core import ArgumentError

__all__ = ["AudioUtilsBackendManager", "backend_manager"]


class AudioUtilsBackendManager:
    """Answers what reads and writes sounds."""

    @property
    def backend(self) -> str:
        """The name of the one in use."""
        return "soundfile"

    @backend.setter
    def backend(self, name: str) -> None:
        if name not in ("soundfile", "pydub"):
            raise ArgumentError(f"audio_utils.set_backend: expected 'soundfile', got {name!r}")

    def get_available_backends(self) -> list[str]:
        """The names of those that are installed."""
        return ["soundfile"] if find_spec("soundfile") else []


backend_manager = AudioUtilsBackendManager()
"""The one that this program uses."""
