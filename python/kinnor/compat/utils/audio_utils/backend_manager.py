"""The backend that reads and writes sounds: soundfile."""

from __future__ import annotations

from importlib.util import find_spec

from ...._core import ArgumentError

__all__ = ["AudioUtilsBackendManager", "backend_manager"]

NAMES = ("soundfile", "pydub")
"""The backend, and what NNabla's programs call theirs."""


class AudioUtilsBackendManager:
    """Answers what reads and writes sounds."""

    def __init__(self) -> None:
        self._name = NAMES[0]

    @property
    def backend(self) -> str:
        """The name of the one in use, as it was set."""
        return self._name

    @backend.setter
    def backend(self, name: str) -> None:
        if name not in NAMES:
            raise ArgumentError(f"audio_utils.set_backend: expected 'soundfile', got {name!r}")
        self._name = name

    def get_available_backends(self) -> list[str]:
        """The names that it goes by, if it is installed."""
        return list(NAMES) if find_spec("soundfile") else []


backend_manager = AudioUtilsBackendManager()
"""The one that this program uses."""
