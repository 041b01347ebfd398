"""Running programs under the names of other libraries, as Python itself would run them."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["package", "run"]


def run(title: str, install: Callable[[], object], standins: str) -> None:
    """Run the program that the arguments of the process name.

    Args:
        title: The module that runs it, for errors.
        install: Puts the names of the other library into place.
        standins: A folder with modules that do so in Python programs that this one starts.
    """
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(f"usage: python -m {title} (script.py | -m module | -c text) [arguments]")
    install()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (standins, os.environ.get("PYTHONPATH"))))
    if arguments[0] in ("-m", "-c"):
        if len(arguments) == 1:
            what = "the name of a module after -m" if arguments[0] == "-m" else "the text of a program after -c"
            sys.exit(f"{title}: expected {what}")
        sys.path.insert(0, "")
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        _run_text(arguments[1])
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def _run_text(text: str) -> None:
    """Run the text of a program as the module `__main__`."""
    module = ModuleType("__main__")
    vars(module).update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = module
    exec(compile(text, "<string>", "exec"), vars(module))


def package(name: str, doc: str) -> ModuleType:
    """Returns a package without files.

    Args:
        name: Its name.
        doc: Its docstring.
    """
    module = ModuleType(name, doc)
    module.__path__ = []
    return module
