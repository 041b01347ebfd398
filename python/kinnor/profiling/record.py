"""What happens in each thread while a profile is taken: spans of time, one within the other."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._core import Function, Variable
from ..autodiff.anomaly import source_line
from .cost import Cost, costs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Lane", "Recorder", "Span", "What"]

NOTHING = Cost(0, 0)


@dataclass(frozen=True, slots=True)
class What:
    """What a span is about.

    Attributes:
        name: Type of a function, or name of a call.
        site: Line of the user's program, `path:line, in function`; empty if there is none.
        shapes: Shapes that a function takes and gives, as text.
        forward: What it does forward.
        backward: What it does backward.
        is_of_run: Whether the line is the one that ran a function, for nobody knows which one built it.
    """

    name: str
    site: str = ""
    shapes: str = ""
    forward: Cost = NOTHING
    backward: Cost = NOTHING
    is_of_run: bool = False


class Span(NamedTuple):
    """Something that a thread did.

    Attributes:
        phase: `forward`, `backward`, `build`, `run`, `update` or `data`.
        what: What it was about.
        start: Nanoseconds of the clock at which it began.
        end: Nanoseconds at which it ended.
        peak: The most bytes that all arrays took meanwhile; -1 if nobody looked.
    """

    phase: str
    what: What
    start: int
    end: int
    peak: int


class Lane:
    """The spans of one thread, and what it is doing."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name
        self.spans: list[Span] = []


class Recorder(threading.local):
    """Takes down what threads do. Each thread sees its own `lane`."""

    def __init__(self, lanes: list[Lane]) -> None:
        self.lane = Lane()
        self.known: dict[tuple[int, ...], What] = {}
        lanes.append(self.lane)

    def take(self, site: str, since: int = 0) -> None:
        """Take over what the engine has timed on this thread since the last call.

        Args:
            site: Line of the user's program that ran it.
            since: When the call began that ran it. The engine says how long ago things were, which is a little too long
                if the thread had to wait meanwhile: nothing begins before the call within which it ran.
        """
        now = perf_counter_ns()
        for functions, is_backward, started_ago, ended_ago, peak in _core.take_timings():
            phase = "backward" if is_backward else "forward"
            start, end = now - started_ago, now - ended_ago
            if end > since:
                start = max(start, since)
            self.lane.spans.append(Span(phase, self.what(functions, site), start, end, peak))

    def what(self, functions: list[Function], site: str) -> What:
        """What is known of functions that ran as one pass, or of one."""
        key = tuple(map(hash, functions))  # which no other function ever has
        what = self.known.get(key)
        if what is None:
            parts = [self.known.get((n,)) or described(f, site, True) for n, f in zip(key, functions, strict=True)]
            what = self.known[key] = parts[0] if len(parts) == 1 else together(parts)
        return what

    def call(self, phase: str, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call something that may run functions."""
        site = source_line() or ""
        start = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            end = perf_counter_ns()
            self.take(site, start)
            self.lane.spans.append(Span(phase, What(name, site), start, end, -1))

    def build(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that connects an operation to variables, or computes it at once."""
        at_once = _core.auto_forward_mode()
        start = perf_counter_ns()
        y = function(*args, **kwargs)
        end = perf_counter_ns()
        first = y[0] if isinstance(y, (tuple, list)) and y else y
        parent = first.parent if isinstance(first, Variable) else None
        site = source_line() or ""
        what = What(name, site) if parent is None else described(parent, site, False)
        if parent is not None:
            self.known[hash(parent),] = what
        computed = at_once or not isinstance(first, Variable)
        live = _core.memory_stats()["live"] if computed else -1
        self.lane.spans.append(Span("forward" if computed else "build", what, start, end, live))
        return y


def described(f: Function, site: str, is_of_run: bool) -> What:
    """What is known of a function; `site` is the line that built it, or with `is_of_run` the line that ran it."""
    inputs, outputs = (" ".join(str(v.shape) for v in side) for side in (f.inputs, f.outputs))
    info = f.info
    line = info.tags.get("built at")  # which functions have that were built within `detect_anomaly`
    return What(info.type_name, line or site, f"{inputs} -> {outputs}", *costs(f), is_of_run and not line)


def together(parts: list[What]) -> What:
    """What is known of functions that run as one pass: the line and the inputs are those of the first one."""
    names = " + ".join(part.name for part in parts)
    shapes = f"{parts[0].shapes.partition(' -> ')[0]} -> {parts[-1].shapes.partition(' -> ')[2]}"
    forward, backward = (
        Cost(sum(cost.flop for cost in costs), sum(cost.bytes for cost in costs))
        for costs in ([part.forward for part in parts], [part.backward for part in parts])
    )
    return What(names, parts[0].site, shapes, forward, backward, parts[0].is_of_run)
