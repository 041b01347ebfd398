"""What a step does with its memory, as a picture: bars of bytes, function by function. Plans nothing itself."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import ArgumentError
from ..display import readable
from ..files.atomic import replacing

if TYPE_CHECKING:
    import os

__all__ = ["PlanReport"]

STYLE = """<style>
.plan { --live: #a9c8ef; --own: #e8590c; --dropped: #f2b48a; --text: #1d2733; --back: #fff; --dim: #66727f;
  font: 13px system-ui, sans-serif; color: var(--text); background: var(--back); padding: 10px;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) { .plan { --live: #2f5482; --own: #ff922b; --dropped: #8a5a2b; --text: #e4e9ee;
  --back: #14181d; --dim: #96a3b0; } }
.plan svg { width: 100%; height: 220px; display: block; } .plan .live { fill: var(--live); }
.plan .own { fill: var(--own); }
.plan .dropped { fill: var(--dropped); } .plan line { stroke: var(--dim); stroke-dasharray: 6 4; }
.plan pre { overflow-x: auto; } .plan b { padding: 0 8px; margin: 0 4px 0 12px; }
</style>"""


class PlanReport(str):
    """The text of `kinnor.plan_report`, which is a picture in a notebook, and a page by `save`.

    A bar for each function of the forward run is as high as what all arrays of the graph take once it has run; its
    lower part is what the function gives, in a colour of its own if that is dropped, to be recomputed or for good.
    """

    facts: dict[str, Any]

    def _repr_html_(self) -> str:
        return STYLE + self._body()

    def _body(self) -> str:
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
            y = 100 - 100 * budget / most
            bars.append(
                f'<line x1="0" x2="{len(steps)}" y1="{y:.3f}" y2="{y:.3f}" vector-effect="non-scaling-stroke"/>'
            )
        key = "".join(
            f'<b style="background:var(--{kind})"></b>{text}'
            for kind, text in (("live", "other arrays"), ("own", "given and kept"), ("dropped", "given and dropped"))
        )
        limit = f", the budget (dashed) is {readable(budget)}" if budget is not None else ""
        return (
            f'<div class="plan"><div>Memory after each function of the forward run: the highest bar is '
            f"{readable(max([live for *_, live in steps], default=0))}{limit}{key}</div>"
            f'<svg viewBox="0 0 {max(len(steps), 1)} 100" preserveAspectRatio="none" role="img" aria-label="memory">'
            f"{''.join(bars)}</svg><pre>{escape(self)}</pre></div>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture and the text as one page, which loads nothing.

        Args:
            path: Path that ends in `.html`.

        Raises:
            ArgumentError: If it ends otherwise.
            OSError: If it cannot be written.
        """
        if Path(path).suffix.lower() != ".html":
            raise ArgumentError(f"plan_report: expected a path that ends in .html, got {str(path)!r}")
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>memory</title>'
        page = f'<!doctype html>\n<html lang="en"><head>{head}{STYLE}</head><body>{self._body()}</body></html>\n'
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, encoding="utf-8")


def bar(kind: str, n: int, part: float) -> str:
    """A bar from below."""
    return f'<rect class="{kind}" x="{n + 0.05}" y="{100 - 100 * part:.3f}" width="0.9" height="{100 * part:.3f}"/>'
