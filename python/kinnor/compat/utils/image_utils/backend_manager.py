"""Which backend reads and writes images."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from ...._core import ArgumentError
from ....logger import logger
from .backend_events.image_utils_backend import ImageUtilsBackend
from .backend_events.pil_backend import PilBackend
from .backend_events.pypng_backend import PngBackend

__all__ = ["ImageUtilsBackendManager", "backend_manager"]

BACKENDS = {
    "pil": PilBackend,
    "pilbackend": PilBackend,
    "png": PngBackend,
    "pypng": PngBackend,
    "pngbackend": PngBackend,
}
"""Backends by what they may be called, in lower case."""

OTHERS = ("cv2", "cv2backend", "dicom", "dicombackend")
"""Names of NNabla's other backends, in lower case."""


class ImageUtilsBackendManager(ImageUtilsBackend):
    """Has a backend at work: `PngBackend`, which does all that there is, until another is set."""

    def __init__(self) -> None:
        self._current: PilBackend = PngBackend()

    def accept(self, path: Any, ext: str, operator: str) -> str:
        """Whether the backend in use can read or write a file.

        Args:
            path: The file.
            ext: Its ending.
            operator: `load`, `save` or `resize`.

        Returns:
            `OK`, or `NG`.
        """
        return self._current.accept(path, ext, operator)

    def get_backend(self) -> str:
        """The name of the one in use."""
        return type(self._current).__name__

    def get_available_backends(self) -> list[str]:
        """The names of those whose packages are installed."""
        return ["PilBackend"] + ["PngBackend"] * (find_spec("png") is not None)

    def get_backend_from_name(self, name: str) -> ImageUtilsBackend:
        """A backend by name.

        Args:
            name: The name; those of NNabla's other backends are taken, and logged.

        Raises:
            ArgumentError: If there is none of that name.
        """
        known = str(name).lower()
        if known in OTHERS:
            logger.warning("image_utils.set_backend: PngBackend is used in the place of %r", name)
        elif known not in BACKENDS:
            raise ArgumentError(f"image_utils.set_backend: expected 'PilBackend' or 'PngBackend', got {name!r}")
        return BACKENDS.get(known, PngBackend)()

    def get_best_backend(self, path: Any, operator: str) -> PilBackend:
        """The backend for a file.

        Args:
            path: The file; without effect, for one backend does all.
            operator: `load`, `save` or `resize`; without effect.
        """
        return self._current

    def set_backend(self, name: str) -> None:
        """Use a backend.

        Args:
            name: The name; those of NNabla's other backends are taken, and logged.

        Raises:
            ArgumentError: If there is none of that name.
        """
        backend = self.get_backend_from_name(name)
        assert isinstance(backend, PilBackend)
        self._current = backend


backend_manager = ImageUtilsBackendManager()
"""The one that this program uses."""
