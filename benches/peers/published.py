"""The measured rows on the page about speed: their file, the figures, and the tables of the page.

The file has a list of runs. A run has the rows of a task (training or prediction), a type and a machine.
`python -m benches.peers --publish` measures one, and replaces the run of the same kind. `python -m
benches.peers.published` draws the figures and the tables again from the file.
"""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contenders import PLAIN, ROOT, TRAINING
from .report import geometric_mean, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .report import Comparison

    Bars = tuple[str, Sequence[float | None]]

FOLDER = ROOT / "docs/guide"
ROWS = ROOT / "benches/results/peers.json"
"""The file of the runs."""
OURS, PEER, GREY = "#3f7fd9", "#d9713f", "#8a8f98"
"""Colours that are visible on white and on black."""

BEGIN, END = "<!-- measured rows -->", "<!-- end of measured rows -->"


def machine() -> str:
    """Describes the processor and the system."""
    told = Path("/proc/cpuinfo")  # exists on Linux only
    names = re.findall(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE) if told.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}"


def kind(facts: dict[str, Any]) -> tuple[str, str, str]:
    """Returns task, type and machine of a run."""
    return facts["task"], facts["dtype"], facts["machine"]


def runs_of(rows: Path = ROWS, task: str = TRAINING, dtype: str = "float32") -> list[dict[str, Any]]:
    """Returns the runs of a task in a type, one for each machine."""
    return [facts for facts in json.loads(rows.read_text()) if (facts["task"], facts["dtype"]) == (task, dtype)]


def names(facts: dict[str, Any], of_first: bool) -> tuple[str, str]:
    """Returns the names of the figures of time and of memory. The first run on the page has short names."""
    part = "" if of_first else re.sub(r"[^a-z0-9]+", "-", "-".join(("", *kind(facts))).lower()).rstrip("-")
    return f"speed{part}-time.svg", f"speed{part}-memory.svg"


def facts_of(comparisons: Sequence[Comparison], threads: int) -> dict[str, Any]:
    """Returns the published facts of comparisons at one number of threads, which are a run.

    Only comparisons that have a peer and count in the mean are published. `time` has our time of a step over the
    time of the fastest peer, one number for each run. It is null for a run without the row. `memory` has both
    peaks in MiB, or is null if unknown. `notes` are sentences that the page shows below.
    """
    now = datetime.now(timezone.utc)
    rows = [
        {
            "workload": c.ours.workload + ("" if c.ours.form == PLAIN else f", {c.ours.form}"),
            "time": [round(c.ratio, 3)],
            "peer": c.peer.who,
            "memory": [round(c.ours.peak), round(c.peer.peak)],
        }
        for c in comparisons
        if c.peer and c.is_target and c.ours.threads == threads
    ]
    first = comparisons[0].ours
    return {
        "task": first.task,
        "dtype": first.dtype,
        "date": f"{now.day} {now:%B %Y}",
        "machine": machine(),
        "threads": threads,
        "notes": [],
        "rows": rows,
    }


def bars(path: Path, label: str, rows: Sequence[Bars], colours: Sequence[str], line: float | None = None) -> None:
    """Draws a group of bars for each row, and a line at a value if there is one."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.8 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for patch in (figure.patch, axes.patch):
        patch.set_alpha(0)
    for place, (_, values) in enumerate(rows):
        height = 0.8 / len(values)
        for n, value in enumerate(values):
            if value is not None:
                axes.barh(place - 0.4 + (n + 0.5) * height, value, height * 0.9, color=colours[n % len(colours)])
    if line is not None:
        axes.axvline(line, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), [workload for workload, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(label, color=GREY)
    axes.tick_params(colors=GREY, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def draw(facts: dict[str, Any], folder: Path, of_first: bool) -> list[str]:
    """Draws the figures and returns the names of their files. Memory is drawn only if it is known."""
    rows = facts["rows"]
    of_time, of_memory = names(facts, of_first)
    times = [(row["workload"], row["time"]) for row in rows]
    bars(folder / of_time, "time / time of the fastest peer", times, (OURS, "#4aa564", "#8a63d2"), line=1.0)
    known = [(row["workload"], row["memory"]) for row in rows if row["memory"]]
    if not known:
        (folder / of_memory).unlink(missing_ok=True)
        return [of_time]
    bars(folder / of_memory, "peak memory in MiB: Kinnor (blue), the fastest peer (orange)", known, (OURS, PEER))
    return [of_time, of_memory]


def text(facts: dict[str, Any], figures: Sequence[str]) -> str:
    """Returns a run in Markdown: its heading, the figures and the table of its rows."""
    rows = facts["rows"]
    runs = len(rows[0]["time"])
    has_memory = any(row["memory"] for row in rows)
    head = ["Workload", *([f"Run {n + 1}" for n in range(runs)] if runs > 1 else ["Time"])]
    head += ["MiB", "Peer's MiB"] * has_memory
    lines = [
        [
            row["workload"],
            *("" if value is None else f"{value:.2f}" for value in row["time"]),
            *[str(value) for value in row["memory"] or ("", "")] * has_memory,
        ]
        for row in rows
    ]
    said = ("Time beside the fastest peer", "Peak memory beside the fastest peer")
    means = [geometric_mean(row["time"][n] for row in rows if row["time"][n] is not None) for n in range(runs)]
    return "\n\n".join(
        [
            f"## {facts['task'].capitalize()} in {facts['dtype']}: {facts['machine']}",
            f"Measured on {facts['date']} with {facts['threads']} threads.",
            *(f"![{what}]({name})" for what, name in zip(said, figures, strict=False)),
            table(head, lines),
            f"Geometric mean: {' and '.join(f'{mean:.2f}' for mean in means)}.",
            *facts["notes"],
        ]
    )


def publish(folder: Path = FOLDER, rows: Path = ROWS) -> None:
    """Draws the figures of the file `rows`, and writes its tables into `speed.md`, between the two comments there."""
    runs = json.loads(rows.read_text())
    shown = "\n\n".join(text(facts, draw(facts, folder, facts is runs[0])) for facts in runs)
    page = folder / "speed.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{shown}\n\n{END}{after}")


def write(comparisons: Sequence[Comparison], threads: int, folder: Path = FOLDER, rows: Path = ROWS) -> None:
    """Writes these comparisons to the file `rows`, in place of a run of the same kind, and publishes it."""
    new = facts_of(comparisons, threads)
    runs = json.loads(rows.read_text()) if rows.exists() else []
    kinds = [kind(facts) for facts in runs]
    place = kinds.index(kind(new)) if kind(new) in kinds else len(runs)
    runs[place : place + 1] = [new]
    rows.write_text(json.dumps(runs, indent=1) + "\n")
    publish(folder, rows)


if __name__ == "__main__":
    publish()
