"""Pictures of a memory plan: a bar of bytes for each function. Plans and runs nothing."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import ArgumentError
from ..display import readable
from ..files.atomic import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ..profiling.result import Moment

__all__ = ["PlanReport"]

STYLE = """<style>
.plan { --live: #a9c8ef; --own: #e8590c; --dropped: #f2b48a; --backward: #b197fc; --text: #1d2733; --back: #fff;
  --dim: #66727f; font: 13px system-ui, sans-serif; color: var(--text); background: var(--back); padding: 10px;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) { .plan { --live: #2f5482; --own: #ff922b; --dropped: #8a5a2b;
  --backward: #7950f2; --text: #e4e9ee; --back: #14181d; --dim: #96a3b0; } }
.plan svg { width: 100%; height: 220px; display: block; } .plan .live { fill: var(--live); }
.plan .own { fill: var(--own); } .plan .backward { fill: var(--backward); }
.plan .dropped { fill: var(--dropped); } .plan line { stroke: var(--dim); stroke-dasharray: 6 4; }
.plan pre { overflow-x: auto; } .plan b { padding: 0 8px; margin: 0 4px 0 12px; }
</style>"""
"""Colours and sizes of the report's picture in HTML."""


class PlanReport(str):
    """The text of `kinnor.plan_report`. Notebooks show it as a picture; `save` writes a page.

    Each function of the forward run has a bar. Its height is the size of all arrays of the graph after the function has
    run. Its lower part is the function's outputs, in a colour of its own if they are dropped. With a profile, a second
    row of bars shows the measured step, forward and backward.
    """

    facts: dict[str, Any]
    """The plan as `plan_report` computed it: `steps`, `budget` and more."""
    moments: Sequence[Moment]
    """The measured moments of a step, empty without a profile."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Returns the report as HTML, for notebooks."""
        return STYLE + self._body()

    def _body(self) -> str:
        """The pictures and the text as HTML."""
        pictures = self._planned() + (self._measured() if self.moments else "")
        return f'<div class="plan">{pictures}<pre>{escape(self)}</pre></div>'

    def _planned(self) -> str:
        """Bars of the planned memory."""
        steps = self.facts["steps"]
        budget = self.facts["budget"]
        most = max([live for *_, live in steps] + [budget or 0, 1])
        bars = []
        for n, (name, _, outputs, live) in enumerate(steps):
            own = min(sum(size for _, size, _ in outputs), live)
            fates = ", ".join(fate for *_, fate in outputs)
            kind = "own" if all(fate == "kept" for *_, fate in outputs) else "dropped"
            title = f"{n + 1} {name}: {readable(own)} {fates}; {readable(live)} in all"
            bars.append(f"<g><title>{escape(title)}</title>{bar('live', n, live / most)}{bar(kind, n, own / most)}</g>")
        if budget is not None:
            bars.append(limit(budget / most, len(steps)))
        words = f", the budget (dashed) is {readable(budget)}" if budget is not None else ""
        text = (
            "Memory after each function of the forward run: the highest bar is "
            f"{readable(max([live for *_, live in steps], default=0))}{words}"
        )
        return chart(text, {"live": "other arrays", "own": "given and kept", "dropped": "given and dropped"}, bars)

    def _measured(self) -> str:
        """Bars of the measured memory."""
        budget = self.facts["budget"]
        peak = max(moment.peak for moment in self.moments)
        most = max(peak, budget or 0, 1)
        kinds = {"forward": "live", "backward": "backward"}
        bars = []
        for n, moment in enumerate(self.moments):
            title = f"{n + 1} {moment.name} {moment.phase}: {readable(moment.peak)} in all"
            bars.append(f"<g><title>{escape(title)}</title>{bar(kinds[moment.phase], n, moment.peak / most)}</g>")
        if budget is not None:
            bars.append(limit(budget / most, len(self.moments)))
        text = (
            "The step as it ran: the most that all arrays of the program took during each function; "
            f"the highest bar is {readable(peak)}"
        )
        return chart(text, {kind: phase for phase, kind in kinds.items()}, bars)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write picture and text as a self-contained page.

        Args:
            path: Path that ends in `.html`.

        Raises:
            ArgumentError: If `path` ends otherwise.
            OSError: If the file cannot be written.
        """
        if Path(path).suffix.lower() != ".html":
            raise ArgumentError(f"plan_report: expected a path that ends in .html, got {str(path)!r}")
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>memory</title>'
        page = f'<!doctype html>\n<html lang="en"><head>{head}{STYLE}</head><body>{self._body()}</body></html>\n'
        with replacing(Path(path), durable=False) as temporary:
            temporary.write_text(page, encoding="utf-8")


def bar(kind: str, n: int, part: float) -> str:
    """SVG of bar number `n`, from the bottom up. `part` is its share of the full height, `kind` its CSS class."""
    return f'<rect class="{kind}" x="{n + 0.05}" y="{100 - 100 * part:.3f}" width="0.9" height="{100 * part:.3f}"/>'


def limit(part: float, n: int) -> str:
    """SVG of a dashed line across `n` bars at the share `part` of the full height."""
    y = 100 - 100 * part
    return f'<line x1="0" x2="{n}" y1="{y:.3f}" y2="{y:.3f}" vector-effect="non-scaling-stroke"/>'


def chart(text: str, key: dict[str, str], bars: Sequence[str]) -> str:
    """HTML of a row of bars below a text. `key` maps the kinds of bars to their meanings."""
    n = max(sum(shape.startswith("<g>") for shape in bars), 1)
    colours = "".join(f'<b style="background:var(--{kind})"></b>{words}' for kind, words in key.items())
    return (
        f'<div>{text}{colours}</div><svg viewBox="0 0 {n} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="memory">{"".join(bars)}</svg>'
    )
