"""How far a command is: a bar on standard error, where somebody looks at it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Progress"]


class Progress:
    """A bar for the time of a `with` block; none if standard error is no terminal or `tqdm` is not installed.

    Args:
        total: How many steps there are.
        text: What stands before the bar.
    """

    def __init__(self, total: int, text: str) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, desc=text, leave=False)

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
        if self._bar is not None:
            if text is not None:
                self._bar.set_description(text, refresh=False)
            self._bar.update(n - self._bar.n)
