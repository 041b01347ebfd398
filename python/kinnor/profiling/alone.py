"""How long each function of a graph takes by itself, by the engine's clock. Knows no tables and no files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .block import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Function

__all__ = ["times_alone"]


def times_alone(
    run: Callable[[], object], n_run: int, seconds: float = float("inf"), backward: bool = False
) -> dict[Function, list[float]]:
    """The times of each function of a run, in seconds, in the order in which the functions run.

    It runs once more before, which does not count. Each function runs by itself, not in one pass with others.

    Args:
        run: Runs a graph, such as `y.forward`.
        n_run: How many times of a function are taken at most.
        seconds: A function whose times add up to more has no more of them taken.
        backward: Whether those of functions that run backward are taken, or else forward.

    Raises:
        CallError: If a profile is being taken.
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
