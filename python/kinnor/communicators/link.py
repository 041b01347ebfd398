"""Measures the bandwidth between processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .transport import Transport

__all__ = ["is_slow", "measure"]

SLOW = 1e9
"""Bandwidth in bytes per second below which sums overlap with the backward run in a thread.

Faster links are shared memory. Their sums would compete with the run for cores.
"""


def measure(members: Transport, size: int = 1 << 18, repeats: int = 4) -> float:
    """Measures the bandwidth of all-reduce in bytes per second. All processes must call it.

    Args:
        members: The processes.
        size: Number of float32 values.
        repeats: Number of sums; the fastest counts.

    Returns:
        The bandwidth of the slowest process, on all processes.
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
    """True if the link is slower than shared memory. All processes must call it, and get the same answer."""
    return measure(members) < SLOW
