"""The choice of the image backend."""

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
"""Backends by their accepted names in lower case."""

OTHERS = ("cv2", "cv2backend", "dicom", "dicombackend")
"""Names of NNabla's other backends in lower case."""


class ImageUtilsBackendManager(ImageUtilsBackend):
    """Forwards to the current backend: `PngBackend` unless another one is set."""

    def __init__(self) -> None:
        self._current: PilBackend = PngBackend()

    def accept(self, path: Any, ext: str, operator: str) -> str:
        """Tell whether the current backend supports an operation on a file.

        Args:
            path: The file.
            ext: Extension of the file.
            operator: `load`, `save` or `resize`.

        Returns:
            `OK`, or `NG`.
        """
        return self._current.accept(path, ext, operator)

    def get_backend(self) -> str:
        """The name of the current backend."""
        return type(self._current).__name__

    def get_available_backends(self) -> list[str]:
        """The names of the backends whose packages are installed."""
        return ["PilBackend"] + ["PngBackend"] * (find_spec("png") is not None)

    def get_backend_from_name(self, name: str) -> ImageUtilsBackend:
        """A backend by name.

        Args:
            name: The name. Names of NNabla's other backends are accepted with a log message.

        Raises:
            ArgumentError: If the name is unknown.
        """
        known = str(name).lower()
        if known in OTHERS:
            logger.warning("image_utils.set_backend: PngBackend is used instead of %r", name)
        elif known not in BACKENDS:
            raise ArgumentError(f"image_utils.set_backend: expected 'PilBackend' or 'PngBackend', got {name!r}")
        return BACKENDS.get(known, PngBackend)()

    def get_best_backend(self, path: Any, operator: str) -> PilBackend:
        """The backend for a file.

        Args:
            path: The file. Without effect, because each backend supports all files.
            operator: `load`, `save` or `resize`; without effect.
        """
        return self._current

    def set_backend(self, name: str) -> None:
        """Use a backend.

        Args:
            name: The name. Names of NNabla's other backends are accepted with a log message.

        Raises:
            ArgumentError: If the name is unknown.
        """
        backend = self.get_backend_from_name(name)
        assert isinstance(backend, PilBackend)
        self._current = backend


backend_manager = ImageUtilsBackendManager()
"""The manager of this process."""
