"""What a backend of images does, whatever the package behind it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from ...._core import ArgumentError
from ....logger import logger

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray
    from typing_extensions import Self

__all__ = ["ImageUtilsBackend"]

OTHERS = ("cv2", "cv2backend", "png", "pypng", "pngbackend", "dicom", "dicombackend")
"""Names of NNabla's other backends, in lower case."""


class ImageUtilsBackend:
    """The base of backends: it answers which there are."""

    def accept(self, path: Any, ext: str, operator: str) -> str:
        """Whether it can read or write a file.

        Args:
            path: The file.
            ext: Its ending.
            operator: `load`, `save` or `resize`.

        Returns:
            `OK`, or `NG`.
        """
        raise NotImplementedError(f"{type(self).__name__}.accept: expected the class to define it")

    def imread(self, path: str | os.PathLike[str] | IO[bytes], *args: Any, **kwargs: Any) -> NDArray[Any]:
        """Read an image.

        Args:
            path: The file.
            *args: As those of `image_utils.imread`.
            **kwargs: As those of `image_utils.imread`.
        """
        raise NotImplementedError(f"{type(self).__name__}.imread: expected the class to define it")

    def get_backend(self) -> str:
        """The name of the one in use."""
        return type(self).__name__

    def get_available_backends(self) -> list[str]:
        """The names of all."""
        return [type(self).__name__]

    def get_backend_from_name(self, name: str) -> Self:
        """A backend by name.

        Args:
            name: The name.

        Raises:
            ArgumentError: If there is none of that name.
        """
        self.set_backend(name)
        return self

    def set_backend(self, name: str) -> None:
        """Use a backend.

        Args:
            name: The name. Those of NNabla's other backends are taken, and logged.

        Raises:
            ArgumentError: If there is none of that name.
        """
        own = type(self).__name__
        known = str(name).lower()
        if known in OTHERS:
            logger.warning("image_utils.set_backend: %s is used in the place of %r", own, name)
        elif known not in (own.lower(), own.lower().removesuffix("backend")):
            raise ArgumentError(f"image_utils.set_backend: expected {own!r}, got {name!r}")
