"""Computes ratios, tables and charts from measured rows."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

from .contenders import DYNAMIC, DYNAMIC_NAMED, NAMED, PLAIN, RUN_AT_ONCE, TRAINING, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .footprint import Footprint

TOLERANCES = {"float32": 1e-3, "bfloat16": 5e-2}
"""Tolerance by type, relative to Kinnor's loss, or to the largest element of its output."""

MOST_WITH_NAMES = 1.3
"""Limit of the relative time with every variable held by a name."""

COLOURS = {"kinnor": "#c0392b", "torch": "#e08e0b", "jax": "#2e86c1", "tensorflow": "#7d6608", "onnxruntime": "#5d6d7e"}


def agree(a: Sequence[float], b: Sequence[float], dtype: str = "float32", are_outputs: bool = False) -> bool:
    """True if two lists of losses, or of elements of outputs, are equal up to rounding in a type."""
    largest = max(map(abs, b), default=0.0)
    return len(a) == len(b) and all(
        abs(x - y) <= TOLERANCES[dtype] * (largest if are_outputs else abs(y)) for x, y in zip(a, b, strict=True)
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Returns the geometric mean, NaN if there are no values."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


@dataclass(frozen=True)
class Comparison:
    """A form of Kinnor's and the fastest peer.

    Attributes:
        ours: Kinnor's row.
        named: The same form with every variable held by a name.
        peer: The fastest peer that computes the same, if any.
        is_target: True if it counts in the mean: static forms, and dynamic ones where calls cost more than
            arithmetic.
    """

    ours: Row
    named: Row | None
    peer: Row | None
    is_target: bool

    @property
    def ratio(self) -> float:
        """Our time over the peer's time."""
        return time(self.ours) / time(self.peer) if self.peer else float("nan")

    def __str__(self) -> str:
        beside = f", {self.ratio:.2f} of {self.peer.who}" if self.peer else ""
        return f"{self.ours.form} {time(self.ours):.3f} ms{beside}"

    @property
    def cpu_ratio(self) -> float:
        """Our processor time over the peer's."""
        return median(self.ours.cpu) / median(self.peer.cpu) if self.peer else float("nan")

    @property
    def names_cost(self) -> float:
        """Time with names over time without."""
        return time(self.named) / time(self.ours) if self.named else float("nan")


def time(row: Row) -> float:
    """Returns the milliseconds of a step or prediction."""
    return median(row.wall)


def void(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows of one workload that do not count, and sets their reason.

    A row does not count if it has no figures, or if its losses or outputs differ from Kinnor's.
    """
    rows = list(rows)
    reference = next((row for row in rows if row.form == PLAIN and not row.failure), Row("", 0, "kinnor", PLAIN))
    for row in rows:
        if not row.failure and not agree(row.losses, reference.losses, row.dtype):
            row.failure = f"losses {row.losses}, Kinnor's {reference.losses}"
        if not row.failure and not agree(row.outputs, reference.outputs, row.dtype, are_outputs=True):
            row.failure = f"outputs {row.outputs[:4]}, Kinnor's {reference.outputs[:4]}"
    return [row for row in rows if row.failure]


def compare(rows: Sequence[Row], is_small_work: bool) -> list[Comparison]:
    """Returns the comparisons within the rows of one workload at one number of threads."""
    valid = [row for row in rows if not row.failure]
    ours = {row.form: row for row in valid if row.framework == "kinnor"}
    peers = [row for row in valid if row.framework != "kinnor"]
    found = []
    for form, with_names in ((PLAIN, NAMED), (DYNAMIC, DYNAMIC_NAMED)):
        rivals = [row for row in peers if form == PLAIN or row.form in RUN_AT_ONCE]
        if form in ours:
            peer = min(rivals, key=time, default=None)
            found.append(Comparison(ours[form], ours.get(with_names), peer, form == PLAIN or is_small_work))
    return found


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a table in aligned Markdown: the first column to the left, the others to the right."""
    lines = [head, *lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def written(line: Sequence[str]) -> str:
        """Formats a line."""
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        return f"| {' | '.join(cells)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([written(lines[0]), written(rule), *map(written, lines[1:])])


def ratios(comparisons: Iterable[Comparison]) -> str:
    """Returns the table of ratios."""
    head = [
        "workload",
        "form",
        "threads",
        "ms",
        "peer ms",
        "fastest peer",
        "ratio",
        "cpu ratio",
        "named",
        "MiB",
        "peer MiB",
    ]
    lines = [
        (
            c.ours.workload,
            c.ours.form,
            str(c.ours.threads),
            f"{time(c.ours):.3f}",
            f"{time(c.peer):.3f}" if c.peer else "-",
            c.peer.who if c.peer else "-",
            f"{c.ratio:.2f}",
            f"{c.cpu_ratio:.2f}",
            f"{c.names_cost:.2f}",
            f"{c.ours.peak:.0f} ({c.ours.peak - c.ours.baseline:+.0f})",
            f"{c.peer.peak:.0f} ({c.peer.peak - c.peer.baseline:+.0f})" if c.peer else "-",
        )
        for c in comparisons
    ]
    return table(head, lines)


def everything(rows: Iterable[Row]) -> str:
    """Returns the table of all measurements."""
    head = [
        "workload",
        "who",
        "threads",
        "ms",
        "best round",
        "cpu ms",
        "peak MiB",
        "over import",
        "build s",
        "void because",
    ]
    lines = [
        (
            row.workload,
            row.who,
            str(row.threads),
            *((f"{time(row):.3f}", f"{min(row.wall):.3f}", f"{median(row.cpu):.3f}") if row.wall else ("-",) * 3),
            f"{row.peak:.0f}",
            f"{row.peak - row.baseline:.0f}",
            f"{row.build_seconds:.1f}",
            row.failure,
        )
        for row in rows
    ]
    return table(head, lines)


def footprints(found: Iterable[Footprint]) -> str:
    """Returns the table of import times and sizes."""
    head = ("what", "import s", "installed MiB", "of these its own")
    return table(head, [(f.name, f"{f.seconds:.2f}", f"{f.total:.0f}", f"{f.own:.0f}") for f in found])


def conclusion(comparisons: Sequence[Comparison], n_threads: int) -> str:
    """Returns the means, and the rows above the limits, for one number of threads."""
    here = [c for c in comparisons if c.ours.threads == n_threads]
    counted = [c for c in here if c.peer and c.is_target]
    others = [c.ratio for c in here if c.peer and not c.is_target]
    slow = sorted((c for c in counted if c.ratio > 1.0), key=lambda c: -c.ratio)
    costly = [c for c in here if c.named and c.names_cost > MOST_WITH_NAMES]
    lines = [
        f"{n_threads} threads: geomean of ratio to fastest peer {geometric_mean(c.ratio for c in counted):.2f}"
        f" ({geometric_mean(c.cpu_ratio for c in counted):.2f} in processor time) over {len(counted)} rows",
        f"  other dynamic rows, beside peers that run at once: {geometric_mean(others):.2f} over {len(others)}",
        "  above 1.0: " + (", ".join(f"{c.ours.workload} {c.ours.form} {c.ratio:.2f}" for c in slow) or "none"),
        f"  names cost more than {MOST_WITH_NAMES}: "
        + (", ".join(f"{c.ours.workload} {c.ours.form} {c.names_cost:.2f}" for c in costly) or "none"),
    ]
    return "\n".join(lines)


def chart(rows: Sequence[Row], path: Path, title: str, of_memory: bool = False) -> None:
    """Draws bars of time or of peak memory relative to the fastest peer, on a logarithmic axis."""
    from matplotlib.figure import Figure

    def value(row: Row) -> float:
        """Returns the length of a bar."""
        return row.peak if of_memory else time(row)

    valid = [row for row in rows if not row.failure]
    workloads = list(dict.fromkeys(row.workload for row in valid))
    figure = Figure(figsize=(9, 1 + 1.1 * len(workloads)), layout="constrained")
    axes = figure.subplots()
    labels, place = [], 0.0
    for name in reversed(workloads):
        here = [row for row in valid if row.workload == name]
        unit = value(min((row for row in here if row.framework != "kinnor"), key=time, default=here[0]))
        for row in sorted(here, key=value, reverse=True):
            alpha = 0.45 if row.form in (NAMED, DYNAMIC, DYNAMIC_NAMED) else 1.0
            axes.barh(place, value(row) / unit, color=COLOURS[row.framework], alpha=alpha)
            labels.append((place, f"{name}: {row.who}"))
            place += 1
        place += 0.8
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks([at for at, _ in labels], [label for _, label in labels], fontsize=6)
    what = "peak memory" if of_memory else "time"
    axes.set_xlabel(f"{what} / {'that' if of_memory else 'time'} of the fastest peer")
    axes.set_title(title)
    figure.savefig(path, dpi=150)


def write(rows: Sequence[Row], comparisons: Sequence[Comparison], found: Sequence[Footprint], folder: Path) -> None:
    """Writes `peers.json`, `peers.csv`, `peers.md`, and charts of time and of memory for each number of threads."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"rows": [row.facts() for row in rows], "footprints": [vars(f) for f in found]}
    (folder / "peers.json").write_text(json.dumps(facts, indent=1) + "\n")
    with (folder / "peers.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("workload", "threads", "framework", "form", "ms", "cpu_ms", "peak_mib", "over_import_mib", "void")
        )
        for row in rows:
            ms = (time(row), median(row.cpu)) if row.wall else ("", "")
            facts_of_row = (row.workload, row.threads, row.framework, row.form, *ms)
            writer.writerow((*facts_of_row, row.peak, row.peak - row.baseline, row.failure))
    counts = list(dict.fromkeys(row.threads for row in rows))
    parts = [*(conclusion(comparisons, n) for n in counts), ratios(comparisons), footprints(found), everything(rows)]
    what = f"{'Training steps' if rows[0].task == TRAINING else 'Predictions'} in {rows[0].dtype}"
    (folder / "peers.md").write_text("\n\n".join([f"# {what} beside peers", *parts]) + "\n")
    for n in counts:
        mine = [row for row in rows if row.threads == n]
        for ending in ("png", "svg"):
            chart(mine, folder / f"peers-{n}.{ending}", f"{what}, {n} threads")
            chart(mine, folder / f"memory-{n}.{ending}", f"Peak memory of {rows[0].task}, {n} threads", of_memory=True)
