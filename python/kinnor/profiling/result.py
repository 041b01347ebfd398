"""The result of a profile: rows to print, and files for other programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from .._check import explained
from .._core import ArgumentError
from ..display import html_table, text_table
from ..files.atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .record import Lane, Span

__all__ = ["Moment", "Profile", "Row"]

LINES = 40
"""Number of printed rows."""


@dataclass(slots=True)
class Row:
    """Totals of the runs of a function, or of other calls.

    Attributes:
        thread: Name of the thread.
        phase: `forward`, `backward`, `build`, `run` (what a run does beside its functions), `update`, `data`, `python`.
        name: Type of the function, or name of the call.
        layer: Scope of the parameters of the function, such as `Net/hidden`, with the class of a module before its own.
            A function without parameters has the scope around the layers that it reads. Empty if there is none.
        site: Line of the user's program that built the function or made the call, `path:line, in function`. For a
            function built before the block it is the line that ran it, unless `kinnor.autodiff.detect_anomaly` was
            active then.
        shapes: Shapes of inputs and outputs.
        calls: Number of calls.
        seconds: Time without nested spans.
        flop: Operations, computed from shapes.
        bytes: Bytes read and written, computed from shapes.
        peak: Peak of the bytes of all arrays during a run; 0 if not measured.
    """

    thread: str
    phase: str
    name: str
    layer: str
    site: str
    shapes: str
    calls: int = 0
    seconds: float = 0.0
    flop: int = 0
    bytes: int = 0
    peak: int = 0


class Moment(NamedTuple):
    """A run of a function or of fused functions, with the peak of memory.

    Attributes:
        phase: `forward` or `backward`.
        name: Function type.
        site: Line of the user's program, as in `Row`.
        seconds: Start in seconds since the block began.
        peak: Peak of the bytes of all arrays during the run.
    """

    phase: str
    name: str
    site: str
    seconds: float
    peak: int


class Profile:
    """The result of `nn.profile`. It prints as a table; notebooks show a table.

    Operations (`flop`) and bytes are computed from shapes. A product of (m, k) and (k, n) counts 2 m k n; a convolution
    2 for each weight of a filter and each output element. Other functions count 1 for each element of their largest
    array, or 0 if they only move elements. A backward run counts as much again for each factor, or input, with a
    gradient. Recurrent layers and attention count as elementwise, which is too low. For fused functions both are sums,
    although values between them may never be written. `peak` is the peak of the bytes of all arrays during a function.
    """

    def __init__(self, lanes: list[Lane], start: int) -> None:
        self._lanes, self._start, self._stop = lanes, start, 0

    def _end(self) -> None:
        """Set the end of the block."""
        self._stop = perf_counter_ns()

    @property
    def seconds(self) -> float:
        """Duration of the block."""
        return ((self._stop or perf_counter_ns()) - self._start) * 1e-9

    def _paths(self) -> Iterator[tuple[Lane, tuple[Span, ...], int]]:
        """Each span with the spans around it, outermost first, and its nanoseconds without nested spans."""
        for lane in self._lanes:
            spans = sorted(lane.spans, key=lambda s: (s.start, -s.end))
            opened: list[tuple[Span, list[int]]] = []
            done: list[tuple[tuple[Span, ...], list[int]]] = []
            for span in spans:
                while opened and opened[-1][0].end < span.end:
                    opened.pop()
                own = [span.end - span.start]
                if opened:
                    opened[-1][1][0] -= own[0]
                opened.append((span, own))
                done.append((tuple(s for s, _ in opened), own))
            for path, own in done:
                yield lane, path, own[0]

    def rows(self, by: str = "function") -> list[Row]:
        """The totals as rows, slowest first.

        Args:
            by: Grouping: `function` (each function, line and phase), `layer` (each layer and phase), `line` (each line
                of the program), `name` (each function type and phase), or `thread`.

        Raises:
            ArgumentError: If `by` has another value.
        """
        keys = {"function": "thread phase name layer site shapes", "layer": "phase layer", "line": "site",
                "name": "phase name", "thread": "thread"}  # fmt: skip
        if by not in keys:
            raise ArgumentError(f"profile.rows: expected `by` to be one of {list(keys)}, got {by!r}")
        fields = keys[by].split()
        found: dict[tuple[str, ...], Row] = {}
        covered: dict[str, int] = defaultdict(int)
        for lane, path, own in self._paths():
            span = path[-1]
            what = span.what
            covered[lane.name] += own
            values = {"thread": lane.name, "phase": span.phase, "name": what.name, "layer": what.layer,
                      "site": what.site, "shapes": what.shapes}  # fmt: skip
            row = row_of(found, values, fields)
            row.calls += 1
            row.seconds += own * 1e-9
            if span.phase in ("forward", "backward"):
                cost = what.forward if span.phase == "forward" else what.backward
                row.flop += cost.flop
                row.bytes += cost.bytes
            row.peak = max(row.peak, span.peak)
        if self._lanes:
            main = self._lanes[0].name
            rest = {"thread": main, "phase": "python", "name": "Python between", "layer": "", "site": "", "shapes": ""}
            row_of(found, rest, fields).seconds += max(0.0, self.seconds - covered[main] * 1e-9)
        return sorted(found.values(), key=lambda row: -row.seconds)

    def memory(self) -> list[Moment]:
        """Memory during the functions of all threads, in the order of time."""
        found = [
            Moment(span.phase, span.what.name, span.what.site, (span.start - self._start) * 1e-9, span.peak)
            for lane in self._lanes
            for span in lane.spans
            if span.phase in ("forward", "backward") and span.peak >= 0
        ]
        return sorted(found, key=lambda moment: moment.seconds)

    @explained("profile.table", {"sort_by": "rows are in the order of their time", "row_limit": "rows() has all rows"})
    def table(self, by: str = "function") -> str:
        """The 40 slowest rows as text, followed by the time of the block.

        Args:
            by: Grouping, as in `rows`.

        Raises:
            ArgumentError: If `by` has another value.
        """
        cells, right = self._cells(by)
        return "\n".join([*text_table(cells, right), self._sum(by)])

    def _cells(self, by: str) -> tuple[list[tuple[str, ...]], tuple[int, ...]]:
        """The cells of the table, and the widths of its columns."""
        names = {"function": ("phase", "name", "layer", "site", "shapes"), "layer": ("phase", "layer"),
                 "line": ("site",), "name": ("phase", "name"), "thread": ("thread",)}  # fmt: skip
        if by not in names:
            raise ArgumentError(f"profile.table: expected `by` to be one of {list(names)}, got {by!r}")
        rows = self.rows(by)
        if by == "function" and len({row.thread for row in rows}) > 1:
            names["function"] = ("thread", *names["function"])
        if by == "function" and not any(row.layer for row in rows):
            names["function"] = tuple(name for name in names["function"] if name != "layer")
        head = ["line" if name == "site" else name for name in names[by]]
        cells = [(*head, "calls", "ms", "%", "GFLOP", "GFLOP/s", "MiB", "peak MiB")]
        for row in rows[:LINES]:
            first = [short(row.site) if name == "site" else getattr(row, name) for name in names[by]]
            rate = f"{row.flop / row.seconds * 1e-9:.1f}" if row.flop and row.seconds else ""
            cells.append(
                (*first, str(row.calls or ""), f"{row.seconds * 1e3:.3f}", f"{row.seconds / self.seconds:.1%}"[:-1],
                 f"{row.flop * 1e-9:.3f}" if row.flop else "", rate, f"{row.bytes / 2**20:.2f}" if row.bytes else "",
                 f"{row.peak / 2**20:.2f}" if row.peak > 0 else "")
            )  # fmt: skip
        return cells, tuple(range(len(head), len(head) + 7))

    def _sum(self, by: str) -> str:
        """The line below the table: hidden rows, time of the block and hints."""
        left = len(self.rows(by)) - LINES
        more = f"... and {left:,} more rows; " if left > 0 else ""
        note = self._note() if by in ("function", "line") else ""
        return f"{more}{self.seconds * 1e3:.3f} ms in all" + (f"\n{note}" if note else "")

    def _note(self) -> str:
        """A hint for functions whose `site` is the line that ran them; empty if there are none."""
        if not any(span.what.is_of_run for lane in self._lanes for span in lane.spans):
            return ""
        return (
            "Functions that were built before the block have the line that ran them. To see the one that built them, "
            "build the graph in the block or within autodiff.detect_anomaly()."
        )

    def __repr__(self) -> str:
        return self.table()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from .._suggest import lacks  # On a mistake only.

            lacks(self, name, "PROFILE", "Profile")

    def _repr_html_(self) -> str:
        """Returns the table of functions as HTML, for notebooks."""
        return html_table(*self._cells("function"), caption=self._sum("function"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a file.

        Args:
            path: Path that ends in `.json` for a Chrome trace, `.html` for a self-contained page with a flame graph, or
                `.csv` for the rows.

        Raises:
            ArgumentError: If `path` ends otherwise.
            OSError: If the file cannot be written.
        """
        kind = Path(path).suffix.lower()
        if kind not in (".json", ".html", ".csv"):
            raise ArgumentError(f"profile: expected a path that ends in .json, .html or .csv, got {str(path)!r}")
        with replacing(Path(path)) as temporary:
            if kind == ".csv":
                fields = list(Row.__dataclass_fields__)
                with temporary.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(fields)
                    writer.writerows([getattr(row, name) for name in fields] for row in self.rows())
            else:
                text = json.dumps(self.trace(), allow_nan=False) if kind == ".json" else self.html()
                temporary.write_text(text, encoding="utf-8")

    def trace(self) -> dict[str, Any]:
        """The profile as Chrome trace events, with times in microseconds since the block began.

        Threads are numbered from 1, because viewers use thread and process 0 for an idle processor.
        """
        pid = os.getpid()
        program = {"name": os.path.basename(sys.argv[0]) or "python"}  # noqa: PTH119 - may be empty
        events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": pid, "tid": 1, "args": program}]
        for tid, lane in enumerate(self._lanes, 1):
            events.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": lane.name}})
            for span in sorted(lane.spans, key=lambda s: (s.start, -s.end)):
                what = span.what
                at = {"pid": pid, "tid": tid, "ts": (span.start - self._start) / 1e3}
                args: dict[str, Any] = {"line": what.site, **({"layer": what.layer} if what.layer else {})}
                if what.shapes:
                    cost = what.backward if span.phase == "backward" else what.forward
                    args |= {"shapes": what.shapes, "flop": cost.flop, "bytes": cost.bytes}
                took = (span.end - span.start) / 1e3
                events.append({"name": what.name, "cat": span.phase, "ph": "X", "dur": took, "args": args, **at})
                if span.peak >= 0:
                    at["ts"] += took
                    events.append({"name": "memory", "ph": "C", "args": {"peak bytes": span.peak}, **at})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def html(self) -> str:
        """A self-contained page with a flame graph and the cost of each program line."""
        root: dict[str, Any] = {"name": "all", "ns": 0, "calls": 1, "of": {}}
        for lane, path, own in self._paths():
            steps = [(lane.name, "thread", "")]
            steps += [(s.what.name, s.phase, f"{s.what.layer}\n{s.what.site}\n{s.what.shapes}".strip()) for s in path]
            at = root
            at["ns"] += own
            for name, phase, about in steps:
                of = at["of"]
                at = of.setdefault(f"{name}\n{phase}\n{about}", {"name": name, "phase": phase, "about": about,
                                                                "ns": 0, "calls": 0, "of": {}})  # fmt: skip
                at["ns"] += own
            at["calls"] += 1
        page = resources.files(__package__).joinpath("flame.html").read_text("utf-8")
        lines = [[row.site or row.name, row.seconds * 1e3, row.calls] for row in self.rows("line")]
        content = {"tree": tree(root), "lines": lines, "ms": self.seconds * 1e3, "note": self._note()}
        return page.replace("__DATA__", json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"))


def row_of(found: dict[tuple[str, ...], Row], values: dict[str, str], fields: Sequence[str]) -> Row:
    """The row for these values of `fields`; a new row if there is none yet."""
    kept = {name: value if name in fields else "" for name, value in values.items()}
    if list(fields) == ["site"]:
        kept["site"] = kept["site"] or values["name"]
    row = Row(kept["thread"], kept["phase"], kept["name"], kept["layer"], kept["site"], kept["shapes"])
    return found.setdefault(tuple(kept.values()), row)


def tree(node: dict[str, Any]) -> dict[str, Any]:
    """A node of the flame graph with its children as a list, slowest first."""
    within = sorted(map(tree, node["of"].values()), key=lambda n: -float(n["ns"]))
    return {**node, "of": within}


def short(site: str) -> str:
    """A site without the folder of its file."""
    path, sign, rest = site.partition(", in ")
    return os.path.basename(path) + sign + rest  # noqa: PTH119 - `rest` is the line number, not part of a path
