"""Arrays of other libraries without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinnor import NdArray

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(a: NdArray, dtype: Any = None, ctx: Any = None) -> Any:
    """An array as a DLPack capsule.

    Args:
        a: The array.
        dtype: Type of element to convert it to.
        ctx: Kept for NNabla's programs; without effect.

    Returns:
        The capsule, which shares the memory.
    """
    if dtype is not None:
        a.cast(dtype)
    return a.__dlpack__()


def from_dlpack(dlp: Any, arr: NdArray | None = None) -> NdArray:
    """An array of the values of a DLPack capsule, or of an object that gives one.

    Args:
        dlp: The capsule or the object.
        arr: Array that is to have the values instead of a new one.

    Returns:
        The array.
    """
    values = np.from_dlpack(dlp if hasattr(dlp, "__dlpack__") else Capsule(dlp))
    made = NdArray.from_numpy_array(values)
    return made if arr is None else arr.copy_from(made)


class Capsule:
    """A bare capsule in the form that NumPy asks for; its memory is this machine's."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
