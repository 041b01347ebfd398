"""The UCI handwritten digits, included in the package."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["digits"]


def digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The UCI handwritten digits: 1,797 real images of 8 x 8 pixels by 13 people.

    They are in the original order, grouped by person. To hold out test images, take every fifth one, or shuffle.

    Returns:
        The images, shape (1797, 1, 8, 8), and their labels, shape (1797,). Pixels are from 0 (paper) to 1 (ink) in
        steps of 1/16, labels from 0 to 9. Both are new arrays.

    Source:
        E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI Machine Learning Repository, 1998,
        https://doi.org/10.24432/C50P49, licensed under CC BY 4.0 (`digits.LICENSE.txt` beside this file).

    Examples:
        >>> images, labels = digits()
        >>> images.shape, labels[:5]
        ((1797, 1, 8, 8), array([0, 1, 2, 3, 4], dtype=int32))
    """
    with (files(__package__) / "digits.npz").open("rb") as file, np.load(file) as arrays:
        images = arrays["images"].astype(np.float32) / np.float32(16)
        labels = arrays["labels"].astype(np.int32)
    return images[:, np.newaxis], labels
