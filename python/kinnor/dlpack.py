"""Arrays of other libraries without a copy, by way of DLPack.

Arrays and variables have `__dlpack__` themselves, so that other libraries can take them; this is the way in, and
NNabla's form of both.

    >>> import numpy as np
    >>> theirs = np.zeros(3, np.float32)
    >>> ours = from_dlpack(theirs)
    >>> ours += 1
    >>> theirs.tolist()
    [1.0, 1.0, 1.0]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import NdArray, RangeError

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(a: NdArray, dtype: Any = None, ctx: Any = None) -> Any:
    """An array as a DLPack capsule, which shares its memory.

    Args:
        a: The array.
        dtype: Type of element to convert it to first.
        ctx: Accepted for NNabla programs; there is one device.

    Returns:
        The capsule, to be taken once.

    Raises:
        BufferError: If DLPack has no such type of element.
    """
    if dtype is not None:
        a.cast(dtype)
    return a.__dlpack__()


def from_dlpack(dlp: Any, arr: NdArray | None = None) -> NdArray:
    """An array over the memory of a DLPack capsule, or of an object that gives one.

    Memory that may only be read, or whose elements are not in a row, is copied.

    Args:
        dlp: The capsule, which is used up, or the object.
        arr: Array of the same shape that is to have the memory instead of a new one.

    Returns:
        The array.

    Raises:
        ShapeError: If `arr` has another shape.
        BufferError: If the memory is that of another device.
    """
    try:
        values = np.from_dlpack(Capsule(dlp.__dlpack__() if hasattr(dlp, "__dlpack__") else dlp))
    except BufferError:
        if not hasattr(dlp, "__dlpack__"):
            raise
        # This form of capsule cannot say that memory is only to be read; that which NumPy asks for can.
        values = np.from_dlpack(dlp).copy()
    except ValueError as error:
        raise RangeError(f"from_dlpack: expected a capsule `dltensor` that was not used yet, got {dlp!r}") from error
    made = NdArray(values.shape) if arr is None else arr
    made._borrow(values, writable=True)  # what is not had no such capsule
    return made


class Capsule:
    """A bare capsule in the form that NumPy asks for."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # NumPy looks at the device that the capsule itself names.
