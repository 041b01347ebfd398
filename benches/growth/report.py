"""The page and the pictures of the bench of growth."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from benches.peers.published import GREY, OURS, PEER, ROOT, machine
from benches.peers.report import table

from .series import MODELS, SERIES

if TYPE_CHECKING:
    from pathlib import Path

RESULTS, ROWS = ROOT / "benches/results/growth.md", ROOT / "benches/results/growth.json"
"""The page, and the file of its figures."""
TIME, MEMORY = "growth-time.svg", "growth-memory.svg"
COLOURS = {OURS: "blue", PEER: "orange"}


class Point(NamedTuple):
    """Figures of one size, for each unit of work or of values, relative to the smallest size."""

    size: int
    step: float
    """Time of a warm step."""
    start: float
    """Time to build the network and run the first step, in memory that is reused."""
    memory: float
    jump: float
    """Time of a warm step relative to the best of all smaller sizes."""


def points(name: str, rows: dict[str, Any]) -> list[Point]:
    """Returns the figures of a series."""
    series = SERIES[name]
    found: list[Point] = []
    (small, base), *_ = rows.items()
    for key, row in rows.items():
        size = int(key)
        work = series.work(size) / series.work(int(small))
        step = row["step"] / base["step"] / work
        start = (row["build"] + row["reused"]) / (base["build"] + base["reused"]) / work
        values = series.values or series.work
        memory = row["MiB"] / base["MiB"] * values(int(small)) / values(size)
        jump = step / min((point.step for point in found), default=step)
        found.append(Point(size, step, start, memory, jump))
    return found


def power(n: int) -> str:
    """Writes a size."""
    return f"10^{len(str(n)) - 1}" if n >= 10**4 and set(str(n)[1:]) == {"0"} else str(n)


def series_text(name: str, rows: dict[str, Any]) -> str:
    """Returns the table of a series."""
    head = [
        "Size",
        "Step",
        "Beside smaller",
        "Build and first step",
        "First step / step",
        "Memory reused",
        "Memory",
        "MiB",
    ]
    lines = [
        [
            power(p.size),
            *(f"{value:.3g}" for value in (p.step, p.jump, p.start)),
            *(f"{rows[str(p.size)][which] / rows[str(p.size)]['step']:.1f}" for which in ("first", "reused")),
            f"{p.memory:.3g}",
            f"{rows[str(p.size)]['MiB']:.{1 if rows[str(p.size)]['MiB'] < 10 else 0}f}",
        ]
        for p in points(name, rows)
    ]
    series = SERIES[name]
    per = f"Time for each {series.unit}, and memory for each {series.value or series.unit}."
    return (
        f"### {name[0].upper()}{name[1:]}\n\n{series.about[0].upper()}{series.about[1:]}. {per}\n\n{table(head, lines)}"
    )


def first_text(found: dict[str, dict[str, Any]]) -> str:
    """Returns the table of first steps."""
    head, lines = ["Step"], []
    for name, rows in found.items():
        head.append(name)
        batches = [key.removesuffix(" warm") for key in rows if key.endswith(" warm")]
        mine = [("building", rows["build"] / rows[f"{batches[0]} warm"])]
        for n, batch in enumerate(batches):
            about = f"batch {int(batch.split()[0]) / int(batches[0]):g} times, " if n else ""
            about += "again, " * batch.endswith("again")
            for which in ("first", "second"):
                mine.append((f"{about}{which} step", rows[f"{batch} {which}"] / rows[f"{batch} warm"]))
        if not lines:
            lines = [[what] for what, _ in mine]
        for line, (_, ratio) in zip(lines, mine, strict=True):
            line.append(f"{ratio:.2f}")
    return table(head, lines)


def memory_text(rows: dict[str, list[float]]) -> str:
    """Returns the table of memory after training."""
    return table(
        ["MiB", "Resident", "Arrays", "Cached"], [[what, *(f"{x:.0f}" for x in r)] for what, r in rows.items()]
    )


def threads_text(rows: dict[str, Any]) -> str:
    """Returns the table of threads."""
    lines = [
        [n, f"{row['step'] / rows['1']['step']:.2f}", "yes" if row["digest"] == rows["1"]["digest"] else "NO"]
        for n, row in rows.items()
    ]
    return table(["Threads", "Time of a step", "Same bits"], lines)


INTRODUCTION = """# Growth

Made by `python -m benches.growth --publish`, which draws the pictures too. {date}, {machine}.
Processor time on one thread, minima of several rounds. Other programs ran on the machine. A training step is forward,
backward and an update by Adam.

## One size grows

Figures are relative to the smallest size: time for each unit of work, and peak memory of arrays for each value. A
figure of 1 is linear growth. Small sizes have fixed costs, so figures fall at first. "Beside smaller" is the time for
each unit relative to the best of all smaller sizes: above 1, a step grows faster than its work.

The first step takes its memory from the system, which has to clear it. "Memory reused" is the first step of a network
like one that the process has freed: its difference to a warm step is planning. "Build and first step" is the time for
each unit in such memory too.

No step grows faster than its work while its arrays fit in the caches, nor after they have left them. In between, the
time for each unit rises, because parameters, their gradients and the state of Adam are read from memory in each step.
Attention needs memory for each token only, because the square matrix of weights is not stored.

![Time for each unit of work](../../docs/guide/growth-time.svg)

![Memory for each value](../../docs/guide/growth-memory.svg)"""

FIRST = """## First steps and new batches

Time relative to a warm step of the same batch. ResNet-50 on images of 224 x 224, batch 4. BERT-base on sequences
of 128 words, batch 2. The first step is the first of the process, after the network is built. Then the same graph runs
with other batches. The first step of BERT-base takes new memory for its gradients and for the state of Adam. Nearly all
of its extra time is spent in the system, which clears that memory."""

BACK = """## Memory that is returned

Resident memory of the process, arrays in use, and memory that the library caches, in MiB. The library caches freed
memory for any length of time, until `nn.clear_memory_cache()` returns it to the system. At the end the process is
larger than before by the heap of the C library, where NumPy made the initial parameters. It does not grow further if
the same is repeated."""

BITS = """## More threads than cores

Five steps of a network with convolutions, normalizations, attention and affine layers, batch 32. Bits of all parameters
are compared with one thread. Times are wall time relative to one thread; beyond the cores they are no claim."""


def described() -> dict[str, Any]:
    """Returns the facts of a measurement that begins: its date, its machine, and no parts."""
    now = datetime.now(timezone.utc)
    return {"date": f"{now.day} {now:%B %Y}", "machine": machine(), "parts": {}}


def text(facts: dict[str, Any]) -> str:
    """Returns the tables in Markdown."""
    found: dict[str, dict[str, Any]] = facts["parts"]
    parts = [INTRODUCTION.format(**facts)]
    parts += [series_text(name, found[name]) for name in SERIES if name in found]
    if firsts := {name: found[key] for name in MODELS if (key := f"first steps, {name}") in found}:
        parts += [FIRST, first_text(firsts)]
    memories = {name: found[key] for name in MODELS if (key := f"memory after, {name}") in found}
    parts += [BACK] * bool(memories)
    parts += [f"### {name}\n\n{memory_text(rows)}" for name, rows in memories.items()]
    if rows := found.get("threads"):
        parts += [BITS, threads_text(rows)]
    return "\n\n".join(parts) + "\n"


def draw(found: dict[str, dict[str, Any]], folder: Path) -> None:
    """Draws time and memory of all series."""
    import matplotlib
    from matplotlib.figure import Figure

    kinds = {
        TIME: ("time", [("step", OURS, "warm step"), ("start", PEER, "building and first step, memory reused")]),
        MEMORY: ("memory", [("memory", OURS, "peak of arrays")]),
    }
    names = [name for name in SERIES if name in found]
    for file, (what, lines) in kinds.items():
        across = min(3, len(names))
        down = -(-len(names) // across)
        figure = Figure(figsize=(7, 0.6 + 1.8 * down), layout="constrained")
        figure.patch.set_alpha(0)
        grid = figure.subplots(down, across, squeeze=False).flat
        for axes, name in zip(grid, names, strict=False):
            mine = points(name, found[name])
            axes.patch.set_alpha(0)
            axes.axhline(1, color=GREY, linewidth=0.8)
            for field, colour, label in lines:
                xs, ys = [p.size for p in mine], [getattr(p, field) for p in mine]
                axes.loglog(xs, ys, color=colour, marker="o", markersize=3, label=label)
            low, high = axes.get_ylim()
            low, high = min(low, 0.25), max(high, 4)
            axes.minorticks_off()
            ticks = [tick for tick in (0.001, 0.01, 0.1, 0.3, 1, 3, 10) if low <= tick <= high]
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_ylim(low, high)
            axes.set_title(name, color=GREY, fontsize=9)
            axes.tick_params(colors=GREY, labelsize=7)
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(GREY)
        for axes in list(grid)[len(names) :]:
            axes.set_axis_off()
        figure.supylabel(f"{what} for each unit / of the smallest size", color=GREY, fontsize=9)
        figure.supxlabel(
            ", ".join(f"{label} ({COLOURS[colour]})" for _, colour, label in lines), color=GREY, fontsize=9
        )
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": file}):
            figure.savefig(folder / file, metadata={"Date": None, "Creator": None})
