"""Progress bars for long work, on standard error if it is a terminal."""

from __future__ import annotations

import sys
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

    No bar is shown if standard error is not a terminal, or `tqdm` (the extra `progress`) is not installed.

    Args:
        total: Number of steps.
        text: Text before the bar.
    """

    def __init__(self, total: int, text: str) -> None:
        self._total, self._text = total, text
        self._start = monotonic()
        self._bar: Any = None
        self._is_wanted = sys.stderr is not None and sys.stderr.isatty()

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
        try:
            from tqdm import tqdm
        except ImportError:
            self._is_wanted = False
            return
        self._bar = tqdm(total=self._total or None, desc=self._text, leave=False)
        self._bar.start_t -= monotonic() - self._start  # include the time before the bar in the rate
        self._bar.update(n)


def each(items: Sequence[T], text: str) -> Iterator[T]:
    """Iterates over items with a progress bar.

    Args:
        items: The items.
        text: Text before the bar.
    """
    with Progress(len(items), text) as bar:
        for n, item in enumerate(items):
            bar.to(n)
            yield item
