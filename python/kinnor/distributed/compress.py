"""Compressed all-reduce: gradients are sent in 16 bits, with error feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .transport import CommunicatorError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from .transport import Transport

__all__ = ["Compressed"]


class Compressed:
    """Sums float32 arrays that are sent with 16 bits per value.

    Each process sums a part of the array in float32, and gathers the other parts. The rounding error of each sent
    value is added to the value at the same position in the next step (error feedback).

    Args:
        members: The processes.
        dtype: `"bfloat16"` or `"float16"`.

    Raises:
        CommunicatorError: If `dtype` is another type.
    """

    def __init__(self, members: Transport, dtype: DTypeLike) -> None:
        name = str(getattr(dtype, "__name__", dtype))
        if name not in ("bfloat16", "float16", "half"):
            raise CommunicatorError(f"all_reduce_callback: expected dtype to be bfloat16 or float16, got {dtype!r}")
        self._members = members
        self._is_bfloat16 = name == "bfloat16"
        self._errors: dict[int, NDArray[np.float32]] = {}
        self._errors_of_sums: dict[int, NDArray[np.float32]] = {}

    def all_reduce(self, values: NDArray[Any], place: int) -> None:
        """Replaces `values` by the sum over all processes.

        Args:
            values: Float32 values of one axis.
            place: A number that identifies the array in each step; its rounding errors are stored under it.
        """
        n, size = self._members.size, values.size
        part = -(-size // n)
        counts = [max(0, min(size, (k + 1) * part) - k * part) for k in range(n)]
        sent = self._rounded(values, self._errors, place)
        own = counts[self._members.rank]
        received = np.empty(n * own, np.uint16)
        self._members.all_to_all(sent, received, counts)
        total = np.zeros(own, np.float32)
        for k in range(n):
            total += self._widened(received[k * own : (k + 1) * own])
        gathered = np.empty(size, np.uint16)
        self._members.all_gather(self._rounded(total, self._errors_of_sums, place), gathered, counts)
        values[...] = self._widened(gathered)

    def _rounded(self, values: NDArray[Any], errors: dict[int, NDArray[np.float32]], place: int) -> NDArray[np.uint16]:
        """Values plus the stored errors, rounded to 16 bits. Stores the new errors."""
        error = errors.get(place)
        wanted = values if error is None else values + error
        sent = self._narrowed(wanted)
        left = wanted - self._widened(sent)
        errors[place] = np.where(np.isfinite(left), left, np.float32(0))  # Overflow leaves no error to feed back.
        return sent

    def _narrowed(self, values: NDArray[Any]) -> NDArray[np.uint16]:
        """Float32 values rounded to 16 bits."""
        if not self._is_bfloat16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16).view(np.uint16)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype(np.uint16), nearest)  # stays NaN

    def _widened(self, values: NDArray[np.uint16]) -> NDArray[np.float32]:
        """16-bit values as float32."""
        if not self._is_bfloat16:
            return values.view(np.float16).astype(np.float32)
        return (values.astype(np.uint32) << 16).view(np.float32)
