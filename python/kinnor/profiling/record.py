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
    """

    name: str
    site: str = ""
    shapes: str = ""
    forward: Cost = NOTHING
    backward: Cost = NOTHING


class Span(NamedTuple):
    """Something that a thread did.

    Attributes:
        phase: `forward`, `backward`, `build`, `run`, `update` or `data`.
        what: What it was about.
        start: Nanoseconds of the clock at which it began.
        end: Nanoseconds at which it ended.
        live: Bytes that all arrays took then; -1 if nobody looked.
    """

    phase: str
    what: What
    start: int
    end: int
    live: int


class Lane:
    """The spans of one thread, and what it is doing."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name
        self.spans: list[Span] = []
        self.begun: list[int] = []
        self.phase = "forward"
        self.site = ""


class Recorder(threading.local):
    """Takes down what threads do. Each thread sees its own `lane`."""

    def __init__(self, lanes: list[Lane]) -> None:
        self.lane = Lane()
        self.known: dict[int, What] = {}
        lanes.append(self.lane)

    def before(self, _: Function) -> None:
        """The hook before each function."""
        self.lane.begun.append(perf_counter_ns())

    def after(self, f: Function) -> None:
        """The hook after each function."""
        end, lane = perf_counter_ns(), self.lane
        if not lane.begun:  # It began before the profile did.
            return
        key = hash(f)
        what = self.known.get(key)
        if what is None:
            what = self.known[key] = described(f, f.info.tags.get("built at") or lane.site)
        lane.spans.append(Span(lane.phase, what, lane.begun.pop(), end, _core.memory_stats()["live"]))

    def call(self, phase: str, runs: str, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call something that may run functions, which are then in the phase `runs`."""
        lane, site = self.lane, source_line() or ""
        outer, depth = (lane.phase, lane.site), len(lane.begun)
        lane.phase, lane.site = runs, site
        start = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            end = perf_counter_ns()
            del lane.begun[depth:]
            lane.phase, lane.site = outer
            lane.spans.append(Span(phase, What(name, site), start, end, -1))

    def build(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that connects an operation to variables, or computes it at once."""
        lane, at_once = self.lane, _core.auto_forward_mode()
        start = perf_counter_ns()
        y = function(*args, **kwargs)
        end = perf_counter_ns()
        first = y[0] if isinstance(y, (tuple, list)) and y else y
        parent = first.parent if isinstance(first, Variable) else None
        site = source_line() or ""
        what = What(name, site) if parent is None else described(parent, site)
        if parent is not None:
            self.known[hash(parent)] = what
        computed = at_once or not isinstance(first, Variable)
        live = _core.memory_stats()["live"] if computed else -1
        lane.spans.append(Span("forward" if computed else "build", what, start, end, live))
        return y


def described(f: Function, site: str) -> What:
    """What is known of a function."""
    inputs, outputs = (" ".join(str(v.shape) for v in side) for side in (f.inputs, f.outputs))
    return What(f.info.type_name, site, f"{inputs} -> {outputs}", *costs(f))
