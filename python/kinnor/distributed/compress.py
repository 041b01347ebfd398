"""Sums of gradients that travel in half precision, with what rounding took added to the next ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .transport import CommunicatorError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from .transport import Transport

__all__ = ["Compressed"]


class Compressed:
    """Sums float32 arrays that are sent as 16 bits a value.

    Each process sums a part of the array in float32, and gathers the parts of the others. What rounding takes from
    a value before it is sent, the process adds to the value at the same place in the next step (error feedback).

    Args:
        members: The processes.
        dtype: `"bfloat16"` or `"float16"`.

    Raises:
        CommunicatorError: If the type is another.
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
        """Put the sum over all processes into `values`.

        Args:
            values: Values of one axis, float32.
            place: What tells this array from others: where its errors are kept.
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
        error = errors.get(place)
        wanted = values if error is None else values + error
        sent = self._narrowed(wanted)
        left = wanted - self._widened(sent)
        errors[place] = np.where(np.isfinite(left), left, np.float32(0))  # What overflowed does not come back.
        return sent

    def _narrowed(self, values: NDArray[Any]) -> NDArray[np.uint16]:
        if not self._is_bfloat16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16).view(np.uint16)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype(np.uint16), nearest)  # stays NaN

    def _widened(self, values: NDArray[np.uint16]) -> NDArray[np.float32]:
        if not self._is_bfloat16:
            return values.view(np.float16).astype(np.float32)
        return (values.astype(np.uint32) << 16).view(np.float32)
