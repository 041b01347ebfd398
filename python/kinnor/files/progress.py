"""Progress bars for long work, on standard error if it is a terminal."""

from __future__ import annotations

import sys
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Progress", "each"]

T = TypeVar("T")

SHORT = 0.5
"""Seconds before a bar is shown."""


class Progress:
    """A progress bar for a `with` block, shown once the block has lasted half a second.

    In a notebook it is a part of the page. Elsewhere it needs a terminal as standard error, and `tqdm`, the extra
    `progress`.

    Args:
        total: How many steps there are.
        text: The text before the bar.
    """

    def __init__(self, total: int, text: str) -> None:
        self._total, self._text = total, text
        self._start = monotonic()
        self._bar: Any = None
        self._is_in_notebook = is_notebook()
        self._is_wanted = self._is_in_notebook or (sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def to(self, n: int, text: str | None = None) -> None:
        """Shows the number of completed steps.

        Args:
            n: Number of steps.
            text: New text before the bar.
        """
        if not self._is_wanted:
            return
        if text is not None:
            self._text = text
        if self._bar is None:
            if monotonic() - self._start < SHORT:
                return
            self._show(n)
        else:
            self._bar.set_description(self._text, refresh=False)
            self._bar.update(n - self._bar.n)

    def _show(self, n: int) -> None:
        """Creates the bar, with `n` completed steps."""
        if self._is_in_notebook:
            self._bar = _PageBar(self._total, self._text, self._start, n)
            return
        try:
            from tqdm import tqdm
        except ImportError:
            self._is_wanted = False
            return
        self._bar = tqdm(total=self._total or None, desc=self._text, leave=False)
        self._bar.start_t -= monotonic() - self._start  # include the time before the bar in the rate
        self._bar.update(n)


class _PageBar:
    """A bar in a page of a notebook, with the methods of tqdm's that `Progress` uses."""

    def __init__(self, total: int, text: str, start: float, n: int) -> None:
        page: Any = import_module("IPython.display")
        self.n, self._total, self._text, self._start = n, total, text, start
        self._html, self._shown = page.HTML, monotonic()
        self._handle: Any = page.display(self._content(), display_id=True)

    def set_description(self, text: str, refresh: bool = False) -> None:
        """Set the text."""
        self._text = text

    def update(self, n: int) -> None:
        """Count further steps; the page is changed ten times a second at most."""
        self.n += n
        if monotonic() - self._shown >= 0.1:
            self._shown = monotonic()
            self._handle.update(self._content())

    def close(self) -> None:
        """Take the bar away."""
        self._handle.update(self._html(""))

    def _content(self) -> Any:
        """Returns the bar, the count and the rate as HTML."""
        from html import escape

        seconds = monotonic() - self._start
        rate = self.n / seconds if seconds > 0 else 0.0
        size = f' max="{self._total}" value="{self.n}"' if self._total else ""
        count = f"{self.n}/{self._total}" if self._total else str(self.n)
        return self._html(
            f"{escape(self._text)}: <progress{size}></progress> {count} [{seconds:.0f} s, {rate:.1f} steps/s]"
        )


def is_notebook() -> bool:
    """True if the program runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")  # A notebook has imported it.
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


def each(items: Sequence[T], text: str) -> Iterator[T]:
    """Iterates over items with a progress bar.

    Args:
        items: The items, which the caller handles one after the other.
        text: The text before the bar.
    """
    with Progress(len(items), text) as bar:
        for n, item in enumerate(items):
            bar.to(n)
            yield item
