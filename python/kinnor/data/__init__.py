"""Data sources, the iterators over them, their cache files, and downloads."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name):
        from .._suggest import absent

        absent(f"{__name__}.{name}")
