"""The commands of the program `kinnor`, one module for each group. `kinnor_cli` lists them.

Each module has a function `add(name, parser)`. It adds the arguments of a command and returns the function
that runs the command on the parsed arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["wrote"]


def wrote(paths: str | Path | Iterable[str | Path], what: str = "") -> None:
    """Print the paths of files or folders that were written.

    Args:
        paths: One path or several; nothing is printed if there are none.
        what: What is in them.

        >>> wrote(["a.csv", "b.csv"], "3 rows")
        wrote a.csv, b.csv: 3 rows
    """
    from pathlib import PurePath

    names = [paths] if isinstance(paths, (str, PurePath)) else list(paths)
    if names:
        print(f"wrote {', '.join(map(str, names))}" + (f": {what}" if what else ""))
