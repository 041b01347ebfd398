"""How fast the link between processes is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .transport import Transport

__all__ = ["is_slow", "measure"]

SLOW = 1e9
"""Bytes a second below which a thread waits for the link while the run goes on. Faster links are memory, whose sums
take the cores that the run needs."""


def measure(members: Transport, size: int = 1 << 18, repeats: int = 4) -> float:
    """Bytes of an array that all processes sum in a second. All of them call it.

    Args:
        members: The processes.
        size: Number of float32 values.
        repeats: Number of sums; the fastest counts.

    Returns:
        The same number on all processes: that of the slowest.
    """
    values = np.zeros(size, np.float32)
    best = float("inf")
    for _ in range(repeats):
        members.barrier()
        start = time.perf_counter()
        members.all_reduce(values)
        best = min(best, time.perf_counter() - start)
    return min(float(text) for text in members.exchange(str(values.nbytes / max(best, 1e-9))))


def is_slow(members: Transport) -> bool:
    """Whether the link is slower than memory. All processes call it, and get the same answer."""
    return measure(members) < SLOW
