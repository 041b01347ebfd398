"""How far long work is: a bar on standard error, where somebody looks at it."""

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
"""Work that takes no more seconds has no bar."""


class Progress:
    """A bar for the time of a `with` block, once that has lasted half a second.

    There is none if standard error is no terminal or `tqdm` is not installed, the extra `progress`.

    Args:
        total: How many steps there are.
        text: What stands before the bar.
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
        """Show that so many steps are done.

        Args:
            n: How many.
            text: What stands before the bar from now on.
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
        try:
            from tqdm import tqdm
        except ImportError:
            self._is_wanted = False
            return
        self._bar = tqdm(total=self._total or None, desc=self._text, leave=False)
        self._bar.start_t -= monotonic() - self._start  # The steps so far count for the rate.
        self._bar.update(n)


def each(items: Sequence[T], text: str) -> Iterator[T]:
    """The items, with a bar that says how many were taken.

    Args:
        items: What work is done for, one after the other.
        text: What stands before the bar.
    """
    with Progress(len(items), text) as bar:
        for n, item in enumerate(items):
            bar.to(n)
            yield item
