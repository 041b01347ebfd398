"""Recording of a profile: nested time spans of each thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._core import Function, Variable
from ..autodiff.anomaly import source_line
from ..core.module import parameter_paths
from ..display import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Function

__all__ = ["Cost", "Lane", "Recorder", "Span", "Subject", "costs"]

# fmt: off
MOVES = frozenset({
    "Assign", "Broadcast", "BroadcastTo", "Concatenate", "ConcatenateParts", "Embed", "Flip", "Gather",
    "GatherNd", "Identity", "MatrixDiag", "MatrixDiagPart", "Meshgrid", "Pad", "Reshape", "Shift", "Sink",
    "Slice", "Split", "Stack", "Tile", "Transpose",
})
"""Functions without arithmetic: they move elements or change shapes."""

PRODUCTS = frozenset({
    "Affine", "BatchMatmul", "Convolution", "Deconvolution", "DepthwiseConvolution", "DepthwiseDeconvolution",
    "ModulatedConvolution",
})
# fmt: on
"""Functions of two factors whose gradients are products of the same size."""


class Cost(NamedTuple):
    """Operations and bytes of one run of a function.

    Attributes:
        flop: Additions and multiplications. Each element of an elementwise function counts as one.
        bytes: Bytes read and written.
    """

    flop: int
    bytes: int


def costs(f: Function) -> tuple[Cost, Cost]:
    """The costs of a function: forward and backward.

    A product of (m, k) and (k, n) counts 2 m k n operations. A convolution counts 2 for each weight of a filter and
    each output element. A backward run counts the same again for each factor that has a gradient. Any other function
    counts one operation for each element of its largest array, and backward the same for each input with a gradient.
    Functions that only move elements count none. A forward run reads the inputs and writes the outputs. A backward run
    reads both and the outputs' gradients, and writes the inputs' gradients.

    Args:
        f: The function.
    """
    inputs, outputs = f.inputs, f.outputs
    wanted = [x for x in inputs if x.need_grad]
    taken, given = sum(map(bytes_of, inputs)), sum(map(bytes_of, outputs))
    moved = taken + given, taken + 2 * given + sum(map(bytes_of, wanted))
    kind = f.info.type_name
    if kind in PRODUCTS and len(inputs) > 1:
        flop = product(f, kind, inputs[0].shape, inputs[1].shape, outputs[0].shape)
        factors = sum(x.need_grad for x in inputs[:2])
    else:
        sizes = [v.size for v in (*inputs, *outputs)]
        flop = 0 if kind in MOVES else max(sizes, default=0)
        factors = len(wanted)
    return Cost(flop, moved[0]), Cost(flop * factors, moved[1])


def product(f: Function, kind: str, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]) -> int:
    """Operations of a product, from the shapes of its factors `a`, `b` and its result `y`."""
    if kind == "Affine":
        return 2 * prod(y) * b[0]
    if kind == "BatchMatmul":
        return 2 * prod(y) * a[-2 if f.info.args.get("transpose_a") else -1]
    return 2 * prod(a if "Deconvolution" in kind else y) * prod(b[1:])


NOTHING = Cost(0, 0)
"""No operations and no bytes: the default cost."""


@dataclass(slots=True)
class Subject:
    """The subject of a span: a function, fused functions, or a call.

    Attributes:
        name: Function type, or name of the call.
        site: Line of the user's program, `path:line, in function`; empty if there is none.
        shapes: Shapes of inputs and outputs as text.
        forward: Cost of a forward run.
        backward: Cost of a backward run.
        is_of_run: Whether `site` is the line that ran the function, because the line that built it is unknown.
        layer: Path of the parameters without their names, or of the layers around the function; may be empty.
    """

    name: str
    site: str = ""
    shapes: str = ""
    forward: Cost = NOTHING
    backward: Cost = NOTHING
    is_of_run: bool = False
    layer: str = ""


class Span(NamedTuple):
    """A time span of a thread.

    Attributes:
        phase: `forward`, `backward`, `build`, `run`, `update` or `data`.
        what: The subject.
        start: Start in nanoseconds of the clock.
        end: End in nanoseconds of the clock.
        peak: Peak of the bytes of all arrays during the span; -1 if not measured.
    """

    phase: str
    what: Subject
    start: int
    end: int
    peak: int


class Lane:
    """The recorded spans of one thread, and its current state."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name
        self.spans: list[Span] = []


class Layers:
    """Finds the layers of functions: the scopes of their parameters, or the scopes around the layers that they read.

    It holds no functions, which would keep their values in memory. All parameters are looked up together when
    a run ends.
    """

    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        """Paths of parameters by the hashes of their arrays."""
        self.others: set[int] = set()
        """Arrays of variables that need a gradient and are no parameters."""
        self.found: dict[int, tuple[str, bool]] = {}
        """The layers of functions by hash, and whether a parameter of the function decides it."""
        self.waiting: list[tuple[Subject, int, list[tuple[int, bool]], list[int]]] = []
        """Subjects without a layer yet: hashes of the function, of arrays that it reads, and of functions before it."""

    def add(self, f: Function, what: Subject) -> None:
        """Set the layer of a subject in the next call of `assign`."""
        inputs = f.inputs
        arrays = [(hash(v.data), v.need_grad) for v in inputs if v.parent is None]
        self.waiting.append((what, hash(f), arrays, [hash(v.parent) for v in inputs if v.parent is not None]))

    def assign(self) -> None:
        """Set the layers of the added subjects."""
        if not self.waiting:
            return
        new = {key for _, _, arrays, _ in self.waiting for key, is_trained in arrays if is_trained}
        if not self.paths or new - self.paths.keys() - self.others:
            self.paths = parameter_paths()
            self.others |= new - self.paths.keys()
        for what, function, arrays, before in self.waiting:
            own = [self.paths[key] for key, _ in arrays if key in self.paths]
            if own:
                what.layer = own[0].rpartition("/")[0]
            else:
                layer, is_own = next((self.found[f] for f in reversed(before) if f in self.found), ("", False))
                what.layer = layer.rpartition("/")[0] if is_own else layer
            self.found[function] = what.layer, bool(own)
        self.waiting.clear()


class Recorder(threading.local):
    """Records spans. Each thread has its own `lane`."""

    def __init__(self, lanes: list[Lane]) -> None:
        self.lane = Lane()
        self.known: dict[tuple[int, ...], Subject] = {}
        self.layers = Layers()
        self.fused: list[tuple[Subject, Subject]] = []
        lanes.append(self.lane)

    def take(self, site: str, since: int = 0) -> None:
        """Move the spans that the engine has timed on this thread since the last call to the lane.

        Args:
            site: Line of the user's program that ran the functions.
            since: Start of the call that ran the functions. The engine reports how long ago a span started. This is
                slightly too long if the thread had to wait, so starts are clipped to `since`.
        """
        now = perf_counter_ns()
        for functions, is_backward, started_ago, ended_ago, peak in _core.take_timings():
            phase = "backward" if is_backward else "forward"
            start, end = now - started_ago, now - ended_ago
            if end > since:
                start = max(start, since)
            self.lane.spans.append(Span(phase, self.what(functions, site), start, end, peak))
        self.layers.assign()
        for whole, first in self.fused:
            whole.layer = first.layer
        self.fused.clear()

    def what(self, functions: list[Function], site: str) -> Subject:
        """The subject for a function, or for several fused functions."""
        key = tuple(map(hash, functions))  # hashes of functions are unique for the life of the process
        what = self.known.get(key)
        if what is None:
            parts = [self.known.get((n,)) or self.described(f, site, True) for n, f in zip(key, functions, strict=True)]
            what = self.known[key] = parts[0] if len(parts) == 1 else together(parts)
            if len(parts) > 1:
                self.fused.append((what, parts[0]))
        return what

    def described(self, f: Function, site: str, is_of_run: bool) -> Subject:
        """The subject for a function, which gets its layer when the run ends."""
        what = described(f, site, is_of_run)
        self.layers.add(f, what)
        return what

    def call(self, phase: str, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that may run graph functions, and record its span."""
        site = source_line() or ""
        start = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            end = perf_counter_ns()
            self.take(site, start)
            self.lane.spans.append(Span(phase, Subject(name, site), start, end, -1))

    def build(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that builds a graph function, or computes it eagerly, and record its span."""
        at_once = _core.auto_forward_mode()
        start = perf_counter_ns()
        y = function(*args, **kwargs)
        end = perf_counter_ns()
        first = y[0] if isinstance(y, (tuple, list)) and y else y
        parent = first.parent if isinstance(first, Variable) else None
        site = source_line() or ""
        what = Subject(name, site) if parent is None else self.described(parent, site, False)
        if parent is not None:
            self.known[hash(parent),] = what
        computed = at_once or not isinstance(first, Variable)
        live = _core.memory_stats()["live"] if computed else -1
        self.lane.spans.append(Span("forward" if computed else "build", what, start, end, live))
        return y


def described(f: Function, site: str, is_of_run: bool) -> Subject:
    """The subject for a function. `site` is the line that built it, or with `is_of_run` the line that ran it."""
    inputs, outputs = (" ".join(str(v.shape) for v in side) for side in (f.inputs, f.outputs))
    info = f.info
    line = info.tags.get("built at")  # set for functions built within `detect_anomaly`
    return Subject(info.type_name, line or site, f"{inputs} -> {outputs}", *costs(f), is_of_run and not line)


def together(parts: list[Subject]) -> Subject:
    """The subject for fused functions. It has the line and the inputs of the first."""
    names = " + ".join(part.name for part in parts)
    shapes = f"{parts[0].shapes.partition(' -> ')[0]} -> {parts[-1].shapes.partition(' -> ')[2]}"
    forward, backward = (
        Cost(sum(cost.flop for cost in costs), sum(cost.bytes for cost in costs))
        for costs in ([part.forward for part in parts], [part.backward for part in parts])
    )
    return Subject(names, parts[0].site, shapes, forward, backward, parts[0].is_of_run)
