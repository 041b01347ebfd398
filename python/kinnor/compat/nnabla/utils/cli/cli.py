"""NNabla's command line program as a function: the program `kinnor`, which has its commands."""

from __future__ import annotations

import sys

from kinnor_cli import main as run

__all__ = ["main"]


def main() -> None:
    """Run the program on the arguments of the process.

    Raises:
        SystemExit: With a status other than 0, if the command failed or was misused.
    """
    status = run()
    if status:
        sys.exit(status)
