"""The interface of image backends."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["ImageUtilsBackend"]


class ImageUtilsBackend:
    """The base class of image backends."""

    def accept(self, path: Any, ext: str, operator: str) -> str:
        """Tell whether the backend supports an operation on a file.

        Args:
            path: The file.
            ext: Extension of the file.
            operator: `load`, `save` or `resize`.

        Returns:
            `OK`, or `NG`.
        """
        raise NotImplementedError(f"{type(self).__name__}.accept: expected the class to define it")

    def imread(self, path: str | os.PathLike[str] | IO[bytes], *args: Any, **kwargs: Any) -> NDArray[Any]:
        """Read an image.

        Args:
            path: The file.
            *args: As in `image_utils.imread`.
            **kwargs: As in `image_utils.imread`.
        """
        raise NotImplementedError(f"{type(self).__name__}.imread: expected the class to define it")
