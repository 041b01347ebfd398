"""Exchange of arrays with other libraries through DLPack, without a copy.

Arrays and variables have `__dlpack__`, so other libraries can import them. This module imports arrays of other
libraries, and has NNabla's functions for both directions.

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
    """Export an array as a DLPack capsule that shares its memory.

    Args:
        a: The array.
        dtype: Element type to convert the array to first.
        ctx: Accepted for NNabla programs; there is one device.

    Returns:
        The capsule, which can be imported once.

    Raises:
        BufferError: If DLPack does not have this element type.
    """
    if dtype is not None:
        a.cast(dtype)
    return a.__dlpack__()


def from_dlpack(dlp: Any, arr: NdArray | None = None) -> NdArray:
    """Import a DLPack capsule, or an object with `__dlpack__`, as an array that shares the memory.

    Memory that is read-only or not contiguous is copied.

    Args:
        dlp: The capsule, which is consumed, or the object.
        arr: Array of the same shape to store the memory in, instead of a new array.

    Returns:
        The array.

    Raises:
        ShapeError: If `arr` has another shape.
        BufferError: If the memory is on another device.
    """
    try:
        values = np.from_dlpack(Capsule(dlp.__dlpack__() if hasattr(dlp, "__dlpack__") else dlp))
    except BufferError:
        if not hasattr(dlp, "__dlpack__"):
            raise
        # This kind of capsule cannot mark memory as read-only. The kind that NumPy asks for can.
        values = np.from_dlpack(dlp).copy()
    except ValueError as error:
        raise RangeError(f"from_dlpack: expected a capsule `dltensor` that was not used yet, got {dlp!r}") from error
    made = NdArray(values.shape) if arr is None else arr
    made._borrow(values, writable=True)  # read-only memory never comes as this kind of capsule
    return made


class Capsule:
    """Wraps a bare capsule for NumPy."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        """Returns the capsule. The options have no effect."""
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the device of the CPU."""
        return (1, 0)  # Always the CPU: NumPy checks the device in the capsule itself.
