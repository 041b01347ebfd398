"""Data sources, the iterators over them, their cache files, and downloads."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name):
        if name.startswith("__"):  # The import system asks for some.
            raise AttributeError(name)
        from .._suggest import absent

        absent(f"{__name__}.{name}")
