"""The measured rows on the page about speed: their file, the figures, and the table of the page.

`python -m benches.peers --publish` measures and writes all of them. `python -m benches.peers.published` draws the
figures and the table again from the file.
"""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contenders import PLAIN, ROOT
from .report import geometric_mean, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .report import Comparison

    Bars = tuple[str, Sequence[float | None]]

FOLDER = ROOT / "docs/guide"
ROWS = ROOT / "benches/results/peers.json"
"""The file of the rows."""
OURS, PEER, GREY = "#3f7fd9", "#d9713f", "#8a8f98"
"""Colours that are visible on white and on black."""

TIME, MEMORY = "speed-time.svg", "speed-memory.svg"
BEGIN, END = "<!-- measured rows -->", "<!-- end of measured rows -->"


def machine() -> str:
    """Describes the processor and the system."""
    told = Path("/proc/cpuinfo")  # exists on Linux only
    names = re.findall(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE) if told.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}"


def facts_of(comparisons: Sequence[Comparison], threads: int) -> dict[str, Any]:
    """Returns the published facts of comparisons at one number of threads.

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
    return {"date": f"{now.day} {now:%B %Y}", "machine": machine(), "threads": threads, "notes": [], "rows": rows}


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


def draw(facts: dict[str, Any], folder: Path) -> list[str]:
    """Draws the figures and returns the names of their files. Memory is drawn only if it is known."""
    rows = facts["rows"]
    times = [(row["workload"], row["time"]) for row in rows]
    bars(folder / TIME, "time of a step / time of the fastest peer", times, (OURS, "#4aa564", "#8a63d2"), line=1.0)
    known = [(row["workload"], row["memory"]) for row in rows if row["memory"]]
    if not known:
        (folder / MEMORY).unlink(missing_ok=True)
        return [TIME]
    bars(folder / MEMORY, "peak memory in MiB: Kinnor (blue), the fastest peer (orange)", known, (OURS, PEER))
    return [TIME, MEMORY]


def text(facts: dict[str, Any], figures: Sequence[str]) -> str:
    """Returns the table of the rows and the figures in Markdown."""
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
    said = {TIME: "Time beside the fastest peer", MEMORY: "Peak memory beside the fastest peer"}
    means = [geometric_mean(row["time"][n] for row in rows if row["time"][n] is not None) for n in range(runs)]
    return "\n\n".join(
        [
            f"Measured on {facts['date']} with {facts['threads']} threads on {facts['machine']}.",
            *(f"![{said[name]}]({name})" for name in figures),
            table(head, lines),
            f"Geometric mean: {' and '.join(f'{mean:.2f}' for mean in means)}.",
            *facts["notes"],
        ]
    )


def publish(folder: Path = FOLDER, rows: Path = ROWS) -> None:
    """Draws the figures of the file `rows`, and writes its table into `speed.md`, between the two comments there."""
    facts = json.loads(rows.read_text())
    page = folder / "speed.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text(facts, draw(facts, folder))}\n\n{END}{after}")


def write(comparisons: Sequence[Comparison], threads: int, folder: Path = FOLDER, rows: Path = ROWS) -> None:
    """Writes these comparisons to the file `rows`, and publishes it."""
    facts = facts_of(comparisons, threads)
    rows.write_text(json.dumps(facts, indent=1) + "\n")
    publish(folder, rows)


if __name__ == "__main__":
    publish()
