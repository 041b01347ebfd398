"""Runs a program under NNabla's names: `python -m kinnor.compat.nnabla (script.py | -m module | -c text) [args]`."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from . import STANDINS, install


def main() -> None:
    """Run the program named by the command line, as Python itself would."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit("usage: python -m kinnor.compat.nnabla (script.py | -m module | -c text) [arguments]")
    install()
    # Python processes that the program starts use NNabla's names, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (STANDINS, os.environ.get("PYTHONPATH"))))
    if arguments[0] in ("-m", "-c"):
        if len(arguments) == 1:
            what = "the name of a module after -m" if arguments[0] == "-m" else "the text of a program after -c"
            sys.exit(f"kinnor.compat.nnabla: expected {what}")
        sys.path.insert(0, "")
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        run_text(arguments[1])
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def run_text(text: str) -> None:
    """Run source text as the module `__main__`."""
    module = type(sys)("__main__")
    vars(module).update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = module
    exec(compile(text, "<string>", "exec"), vars(module))


main()
