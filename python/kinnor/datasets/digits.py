"""The UCI handwritten digits, which come with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["digits"]


def digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The UCI handwritten digits: 1,797 real images of 8 x 8 pixels by 13 people.

    They stand in the order of the original, in which each person's digits are together: take every fifth image, or
    shuffle, to hold some out.

    Returns:
        The images, shape (1797, 1, 8, 8), from 0 (paper) to 1 (ink) in steps of 1/16, and their labels, shape (1797,),
        from 0 to 9. Both are fresh arrays.

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
