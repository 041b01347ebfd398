"""The choice of the audio backend: soundfile."""

from __future__ import annotations

from importlib.util import find_spec

from ...._core import ArgumentError

__all__ = ["AudioUtilsBackendManager", "backend_manager"]

NAMES = ("soundfile", "pydub")
"""Accepted names of the backend: its own, and NNabla's."""


class AudioUtilsBackendManager:
    """Stores the name of the audio backend."""

    def __init__(self) -> None:
        self._name = NAMES[0]

    @property
    def backend(self) -> str:
        """The name of the backend, as it was set."""
        return self._name

    @backend.setter
    def backend(self, name: str) -> None:
        if name not in NAMES:
            raise ArgumentError(f"audio_utils.set_backend: expected 'soundfile', got {name!r}")
        self._name = name

    def get_available_backends(self) -> list[str]:
        """The names of the backend, if it is installed."""
        return list(NAMES) if find_spec("soundfile") else []


backend_manager = AudioUtilsBackendManager()
"""The manager of this process."""
