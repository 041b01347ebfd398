"""Data sources and iterators, learning-rate schedules, files and other tools, under NNabla's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        """Raises AttributeError with a hint at a similar name."""
        if name.startswith("_"):
            raise AttributeError(f"module 'kinnor.utils' has no attribute {name!r}")
        from ..._suggest import absent  # On a mistake only, not on import.

        absent(f"kinnor.utils.{name}", globals())
