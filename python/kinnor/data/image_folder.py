"""Data sets of images in folders: one folder for each class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.images import read_channels
from .data_source import DataError, DrawingDataSource, Orders
from .data_source_loader import load_image_imread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

__all__ = ["ENDINGS", "ImageFolderDataSource"]

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""The endings of files that are taken for images."""


class ImageFolderDataSource(DrawingDataSource):
    """Images in folders, one folder for each class: `folder/cat/1.png`, `folder/dog/7.jpg` and so on.

    An example is an image `x`, shape (channels, height, width), from 0 to 1, and the number of its class `y`, shape
    (1,). Classes are the names of the folders in alphabetical order. Images in folders below those belong to the class,
    too. Hidden files and those that do not end as images do are left out.

    Args:
        folder: Path of the folder with the folders of the classes.
        shape: Channels (1 of grey, 3 or 4), height and width, which all images are brought to. By default the images
            have three channels and their own size, which has to be the same for all images of a batch.
        shuffle: True for a random order, a new one in each epoch.
        rng: Generator of the orders; `RandomState(313)` if it is None.

    Attributes:
        classes: Names of the classes; the place of a name is the number of its class.
        paths: Paths of the images.
        labels: Number of the class of each image.

    Raises:
        DataError: If there is no image.
        OSError: If the folder cannot be read.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from kinnor.files.images import write_image
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / name).mkdir()
        ...     write_image(folder / name / "1.png", np.zeros((8, 6, 3), np.uint8))
        >>> source = ImageFolderDataSource(folder, shape=(3, 4, 4))
        >>> source.size, source.classes
        (2, ['cat', 'dog'])
        >>> image, label = source.next()
        >>> image.shape, label
        ((3, 4, 4), array([0], dtype=int32))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        shape: Sequence[int] | None = None,
        shuffle: bool = False,
        rng: RandomState | None = None,
    ) -> None:
        super().__init__(shuffle, rng)
        self._original_source_uri = os.fspath(folder)
        self._shape = None if shape is None else tuple(shape)
        folders = sorted(path for path in Path(folder).iterdir() if path.is_dir() and not path.name.startswith("."))
        self.classes = [path.name for path in folders]
        found = [(path, label) for label, each in enumerate(folders) for path in _images(each)]
        if not found:
            raise DataError(
                f"ImageFolderDataSource: expected folders of images in {folder}, one for each class, got none "
                f"with files that end in {', '.join(ENDINGS)}"
            )
        self.paths = [path for path, _ in found]
        self.labels = np.array([label for _, label in found], np.int32)
        self._variables = ("x", "y")
        self._size = len(found)
        self._orders = Orders(self._size, shuffle, self._rng)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Reads the image at a position of an epoch's order."""
        return self.read(int(self._orders[generation][position]))

    def read(self, index: int) -> tuple[Any, ...]:
        """Read an image.

        Args:
            index: Its place in `paths`.

        Returns:
            The image and the number of its class.

        Raises:
            ImageError: If the file is no image.
        """
        shape = self._shape
        if shape is None:
            pixels = read_channels(self.paths[index], n_channels=3).transpose(2, 0, 1)
            return np.asarray(pixels * np.float32(1 / 255)), self.labels[index : index + 1]
        return load_image_imread(self.paths[index], shape).astype(np.float32), self.labels[index : index + 1]


def _images(folder: Path) -> list[Path]:
    """Returns the paths of the images in a folder and below, sorted, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
