"""What a backend of images does, whatever the package behind it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["ImageUtilsBackend"]


class ImageUtilsBackend:
    """The base of backends."""

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
