"""Measures the time of each function in a run."""

from __future__ import annotations

import csv
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...._core import Function, take_timings
from ....files.atomic import replacing
from ....profiling.block import timed
from .base import FunctionHookCallbackBase

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CpuTimerCallback", "TimeProfiler"]

SUMMARY = "summary"
"""Name of the scope for the times of whole `with` blocks."""


class CpuTimerCallback(FunctionHookCallbackBase):
    """A clock that collects times by key. `calc_elapsed_time` sums the times of one iteration.

    Args:
        ext_name: Name of the extension; without effect.
        device_id: Name of the device; without effect.
    """

    def __init__(self, ext_name: str = "cpu", device_id: str = "0") -> None:
        self.ext_name, self.device_id = ext_name, device_id
        self.key_to_elapsed: dict[Any, list[float]] = {}
        self._begun: dict[Any, float] = {}
        self._spent: dict[Any, float] = {}

    @staticmethod
    def timer() -> float:
        """The current time in seconds, from an arbitrary origin."""
        return time.perf_counter()

    def pre_hook(self, *args: Any, **kwargs: Any) -> None:
        """Start the time of a key.

        Args:
            *args: The key, such as a function.
            **kwargs: Not accepted.
        """
        self._begun[args[0]] = self.timer()

    def post_hook(self, *args: Any, **kwargs: Any) -> None:
        """Stop the time of a key.

        Args:
            *args: The key, such as a function.
            **kwargs: Not accepted.
        """
        now = self.timer()
        if args[0] in self._begun:
            self.add(args[0], now - self._begun.pop(args[0]))

    def add(self, key: Any, seconds: float) -> None:
        """Add to the time of a key in this iteration.

        Args:
            key: The key.
            seconds: The time to add.
        """
        self._spent[key] = self._spent.get(key, 0.0) + seconds

    def calc_elapsed_time(self) -> None:
        """End an iteration: append the summed time of each key to its list."""
        for key, seconds in self._spent.items():
            self.key_to_elapsed.setdefault(key, []).append(seconds)
        self._spent.clear()

    def average(self, start_index: int = 0) -> dict[Any, float]:
        """The mean time of each key, in seconds.

        Args:
            start_index: The first iteration to include.
        """
        rows = {key: times[start_index:] for key, times in self.key_to_elapsed.items()}
        return {key: sum(times) / len(times) for key, times in rows.items() if times}


class TimeProfiler(FunctionHookCallbackBase):
    """Measures the time of each function, forward and backward, and of each block as a whole.

    It counts the functions of runs that got its hooks. Within a `scope` the engine measures the times, without the time
    of hooks, as in `kinnor.profile`. No other profile can be active in that time. If the hooks are called for other
    keys, the time is measured from one hook to the other.

    Args:
        ext_name: Name of the extension: `cpu`.
        device_id: Name of the device; without effect.

    Examples:
        >>> import kinnor as nn
        >>> x = nn.Variable((4, 4), need_grad=True)
        >>> y = nn.functions.sum(nn.functions.relu(x))
        >>> profiler = TimeProfiler("cpu", "0")
        >>> for _ in range(3):
        ...     with profiler.scope("forward"):
        ...         y.forward(function_pre_hook=profiler.pre_hook, function_post_hook=profiler.post_hook)
        ...     profiler.calc_elapsed_time(["forward", "summary"])
        >>> [len(times) for times in profiler.get_all_results()["forward"].values()]
        [3, 3]
    """

    def __init__(self, ext_name: str = "cpu", device_id: str = "0") -> None:
        self.ext_name, self.device_id = ext_name, device_id
        self.profilers: dict[str, CpuTimerCallback] = {}
        self._scope_name, self._is_timed = "", False
        self.create_new_profiler(SUMMARY)

    def create_new_profiler(self, scope_name: str) -> None:
        """Create the clock of a scope.

        Args:
            scope_name: Its name.
        """
        self.profilers[scope_name] = CpuTimerCallback(self.ext_name, self.device_id)

    @contextmanager
    def scope(self, scope_name: str) -> Iterator[TimeProfiler]:
        """Count the functions of a `with` block under a name. The block itself counts under `summary`.

        Args:
            scope_name: The name, such as `forward`.

        Raises:
            TypeError: If another profile is active.
        """
        if scope_name not in self.profilers:
            self.create_new_profiler(scope_name)
        with nullcontext() if self._is_timed else timed(alone=False):
            outer, self._scope_name = (self._is_timed, self._scope_name), scope_name
            self._is_timed = True
            self.profilers[SUMMARY].pre_hook(scope_name)
            try:
                yield self
            finally:
                self.profilers[SUMMARY].post_hook(scope_name)
                self._is_timed, self._scope_name = outer

    @property
    def pre_hook(self) -> Callable[[Any], None]:
        """The function for `function_pre_hook`, in a `scope`."""
        name = self._scope_name
        return lambda f: self.call_pre_hook(name, f)

    @property
    def post_hook(self) -> Callable[[Any], None]:
        """The function for `function_post_hook`, in a `scope`."""
        name = self._scope_name
        return lambda f: self.call_post_hook(name, f)

    def call_pre_hook(self, scope_name: str, key: Any) -> None:
        """Start the time of a key in a scope.

        Args:
            scope_name: The name of the scope. Nothing is counted outside of a scope.
            key: The function.
        """
        if scope_name in self.profilers and not self._is_timed_by_engine(key):
            self.profilers[scope_name].pre_hook(key)

    def call_post_hook(self, scope_name: str, key: Any) -> None:
        """Stop the time of a key in a scope.

        Args:
            scope_name: The name of the scope.
            key: The function.
        """
        profiler = self.profilers.get(scope_name)
        if profiler is None:
            return
        if not self._is_timed_by_engine(key):
            profiler.post_hook(key)
            return
        for functions, _, started_ago, ended_ago, _ in take_timings():
            if functions == [key]:
                profiler.add(key, (started_ago - ended_ago) * 1e-9)

    def _is_timed_by_engine(self, key: Any) -> bool:
        """True if the engine measures this key."""
        return self._is_timed and isinstance(key, Function)

    def calc_elapsed_time(self, names: str | Sequence[str] | None = None) -> None:
        """End an iteration. Times are counted only for ended iterations.

        Args:
            names: Names of scopes; all of them by default.
        """
        chosen = [names] if isinstance(names, str) else self.profilers if names is None else names
        for name in chosen:
            if name in self.profilers:
                self.profilers[name].calc_elapsed_time()

    def average(self, start_index: int = 0) -> dict[str, dict[Any, float]]:
        """The mean time of each function in each scope, in seconds.

        Args:
            start_index: The first iteration to include.
        """
        return {name: profiler.average(start_index) for name, profiler in self.profilers.items()}

    def get_all_results(self) -> dict[str, dict[Any, list[float]]]:
        """The times of each iteration, in seconds, by scope and function."""
        return {name: dict(profiler.key_to_elapsed) for name, profiler in self.profilers.items()}

    def __call__(self) -> None:
        """Print mean times. The first iteration is left out if there are others."""
        for name, times in self.average(self._first_iteration(True)).items():
            print(f"### {name} ###")
            for key, seconds in times.items():
                print(f"{_label(key)}: {1e3 * seconds} [ms]")
            print()

    def _first_iteration(self, ignore_init: bool) -> int:
        """Index of the first iteration to include."""
        n = max((len(times) for p in self.profilers.values() for times in p.key_to_elapsed.values()), default=0)
        return int(ignore_init and n > 1)

    def to_csv(self, out_dir: str | os.PathLike[str] = "./", ignore_init: bool = True) -> None:
        """Write mean times to `profile_summary.csv` and `profile_detail.csv`.

        Args:
            out_dir: Path of the folder, which is created.
            ignore_init: Whether to leave the first iteration out, if there are others.

        Raises:
            OSError: If a file cannot be written.
        """
        first = self._first_iteration(ignore_init)
        means = self.average(first)
        counts = {n: {k: len(t) - first for k, t in p.key_to_elapsed.items()} for n, p in self.profilers.items()}
        folder = Path(out_dir)
        folder.mkdir(parents=True, exist_ok=True)
        summary = means.pop(SUMMARY)
        rows = [(key, 1e3 * seconds, "ms", counts[SUMMARY][key]) for key, seconds in summary.items()]
        _write(folder / "profile_summary.csv", [("scope", "time", "scale", "num"), *rows])
        keys = list(dict.fromkeys(key for times in means.values() for key in times))
        names = list(means)
        header = ["scope", "original_key"]
        header += [f"{what}_{name}" for what in ("num", "scale", "time") for name in names]
        table: list[Sequence[Any]] = [header]
        seen: dict[str, int] = {}
        for key in keys:
            label = _label(key)
            number = seen[label] = seen.get(label, -1) + 1
            n_times = [counts[name].get(key, 0) for name in names]
            times = [1e3 * means[name][key] if key in means[name] else "" for name in names]
            table.append([f"{label}_{number}", label, *n_times, *["ms"] * len(names), *times])
        _write(folder / "profile_detail.csv", table)


def _label(key: Any) -> str:
    """The text for a key."""
    return key if isinstance(key, str) else str(key.info.type_name)


def _write(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows to a CSV file."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
