"""Times of single functions of a graph, by the engine's clock. No tables and no files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import _core
from ...profiling.block import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import Function

__all__ = ["times_alone"]


def times_alone(
    run: Callable[[], object], n_run: int, seconds: float = float("inf"), backward: bool = False
) -> dict[Function, list[float]]:
    """Measure each function of a run. Returns seconds by function, in the order of the run.

    A warm-up run comes first. Functions are not fused.

    Args:
        run: Runs a graph, such as `y.forward`.
        n_run: Maximum number of times for each function.
        seconds: Time limit for each function: after it, no more times of the function are collected.
        backward: Whether to measure backward instead of forward runs.

    Raises:
        CallError: If another profile is active.
    """
    found: dict[Function, list[float]] = {}
    with timed(alone=True):
        run()
        _core.take_timings()
        for _ in range(n_run):
            run()
            for (function, *_), is_backward, started_ago, ended_ago, _ in _core.take_timings():
                times = found.setdefault(function, []) if is_backward == backward else []
                if sum(times) <= seconds:
                    times.append((started_ago - ended_ago) * 1e-9)
            if all(sum(times) > seconds for times in found.values()):
                break
    return found
