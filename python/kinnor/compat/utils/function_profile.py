"""Profiles of Python functions by a Python profiler."""

from __future__ import annotations

import atexit
import cProfile
import functools
import pstats
from typing import TYPE_CHECKING, Any

from ..._core import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FunctionProfile", "profile"]


class FunctionProfile:
    """A Python function with a profiler. `profile` creates it as the attribute `profiler`.

    Args:
        fn: The function.
        condition: Predicate on the arguments: whether to profile the call. All calls by default.
        profile_class: `cProfile.Profile`, or a class like it.
        print_freq: Number of calls after which the times are printed; 0 prints them once at the end of the process.
        sort_keys: Sort order of the table, as for `pstats.Stats.sort_stats`.
        print_restrictions: Rows to print, as for `pstats.Stats.print_stats`.
    """

    profiling = False
    """True while any function is profiled. Functions called within it are not profiled separately."""

    def __init__(
        self,
        fn: Callable[..., Any],
        condition: Callable[..., bool] | None = None,
        profile_class: Callable[[], Any] = cProfile.Profile,
        print_freq: int = 0,
        sort_keys: Sequence[str] | None = None,
        print_restrictions: Sequence[Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise CallError(f"profile: expected a function, got {type(fn).__name__}")
        self.fn, self.condition, self.profile_class, self.print_freq = fn, condition, profile_class, print_freq
        self.sort_keys = tuple(sort_keys or ("cumulative", "time", "calls"))
        self.print_restrictions = tuple(print_restrictions or (40,))
        self.reset_stats()
        atexit.register(self._at_end)

    def reset_stats(self) -> None:
        """Discard the times so far."""
        self._profile = self.profile_class()
        self.ncalls = 0

    def print_stats(self, reset: bool = True) -> None:
        """Print the times so far on standard output.

        Args:
            reset: Whether to discard them afterwards.
        """
        code = getattr(self.fn, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}, " if code else ""
        print(f"--- {where}{getattr(self.fn, '__qualname__', self.fn)}: {self.ncalls} calls ---")
        if self.ncalls:
            pstats.Stats(self._profile).sort_stats(*self.sort_keys).print_stats(*self.print_restrictions)
        if reset:
            self.reset_stats()

    def _at_end(self) -> None:
        """Print the times at the end of the process, if there were calls."""
        if self.ncalls:
            self.print_stats()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with profiling."""
        if FunctionProfile.profiling or not (self.condition is None or self.condition(*args, **kwargs)):
            return self.fn(*args, **kwargs)
        FunctionProfile.profiling = True
        try:
            return self._profile.runcall(self.fn, *args, **kwargs)
        finally:
            FunctionProfile.profiling = False
            self.ncalls += 1
            if self.print_freq and self.ncalls >= self.print_freq:
                self.print_stats()


def profile(
    fn: Callable[..., Any] | None = None,
    condition: Callable[..., bool] | None = None,
    profile_class: Callable[[], Any] = cProfile.Profile,
    print_freq: int = 0,
    sort_keys: Sequence[str] | None = None,
    print_restrictions: Sequence[Any] | None = None,
) -> Any:
    """Profile a Python function and print the times of its calls.

    Args:
        fn: The function; without it, a decorator with these arguments is returned.
        condition: Predicate on the arguments: whether to profile the call. All calls by default.
        profile_class: `cProfile.Profile`, or a class like it.
        print_freq: Number of calls after which the times are printed; 0 prints them once at the end of the process.
        sort_keys: Sort order of the table, as for `pstats.Stats.sort_stats`: by default `cumulative`, `time`, `calls`.
        print_restrictions: Rows to print, as for `pstats.Stats.print_stats`: by default 40 lines.

    Returns:
        The function, with a `FunctionProfile` as its attribute `profiler`.

    Examples:
        >>> @profile(condition=lambda x: x > 0)
        ... def double(x):
        ...     return 2 * x
        >>> double(2), double(-2), double.profiler.ncalls
        (4, -4, 1)
        >>> double.profiler.reset_stats()
    """
    if fn is None:
        return functools.partial(
            profile,
            condition=condition,
            profile_class=profile_class,
            print_freq=print_freq,
            sort_keys=sort_keys,
            print_restrictions=print_restrictions,
        )
    profiler = FunctionProfile(fn, condition, profile_class, print_freq, sort_keys, print_restrictions)

    @functools.wraps(fn)
    def watched(*args: Any, **kwargs: Any) -> Any:
        """Calls the function through the profiler."""
        return profiler(*args, **kwargs)

    watched.profiler = profiler  # type: ignore[attr-defined]
    return watched
