"""Runs a program under NNabla's names: `python -m kinnor.compat.nnabla script.py [arguments]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from . import install


def main() -> None:
    """Run the program that the arguments name, as Python itself would."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit("usage: python -m kinnor.compat.nnabla (script.py | -m module) [arguments]")
    install()
    if arguments[0] == "-m":
        if len(arguments) == 1:
            sys.exit("kinnor.compat.nnabla: expected the name of a module after -m")
        sys.argv = arguments[1:]
        sys.path.insert(0, "")
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


main()
