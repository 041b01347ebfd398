"""NNabla's functions without what it does around them: the channels of `patch_correlation` are last here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinnor import functions as ours

from .functions import *  # noqa: F403
from .functions import __all__ as names
from .functions import function_api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinnor import Variable

__all__ = [*names, "function_api"]


def patch_correlation(
    x1: Variable,
    x2: Variable,
    patch: Sequence[int] = (1, 1),
    shift: Sequence[int] = (0, 0),
    patch_step: Sequence[int] = (1, 1),
    shift_step: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
) -> Variable:
    """Sums of products of patches: `kinnor.functions.patch_correlation` of images whose channels are last.

    Args:
        x1: Images, shape (n, height, width, channels).
        x2: Images of the same shape.
        patch: Height and width of a patch.
        shift: Largest shift, in either direction, along height and width.
        patch_step: Distance of neighbouring patches.
        shift_step: Distance of neighbouring shifts.
        padding: Zeros above, below, left and right of the images.

    Returns:
        Array of shape (n, rows, columns, shifts along height, shifts along width).

    Raises:
        ShapeError: If the images differ in shape, have not four axes, or are smaller than a patch.
        ArgumentError: If an argument has not as many numbers, or one out of range.
    """
    return ours.patch_correlation(x1, x2, patch, shift, patch_step, shift_step, padding, channel_last=True)
