"""Kinnor under NNabla's names: after this module is imported, `import nnabla` returns Kinnor.

    python -m kinnor.compat.nnabla script.py     # runs a program for NNabla, also with -m module or -c text
    pytest -p kinnor.compat.nnabla               # runs tests for NNabla

A program can also `import kinnor.compat.nnabla` before its first `import nnabla`. NNabla's modules that have a
counterpart in Kinnor are found on import. The import of any other module fails with an error that says so.

In this mode Kinnor behaves like NNabla: forward runs go depth first, an input that is not a variable is an
AssertionError, and errors that NNabla does not check are not raised. docs/differences.md lists the intended
differences.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor import _core
from kinnor._suggest import absence
from kinnor.compat import names
from kinnor.compat._programs import package

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["STANDINS", "VERSION", "install"]

VERSION = "1.39.0"
"""The NNabla version of this API, for programs that ask for it. Kinnor's version is `nnabla.__kinnor__`."""

STANDINS = str(Path(__file__).parent / "_standins")
"""Folder with modules `nnabla` and `nnabla_ext` that import this package, for spawned processes."""

NATIVE = (
    "autodiff",
    "checkpoint",
    "cli",
    "compat",
    "datasets",
    "files",
    "launch",
    "model",
    "report",
    "symbolic",
    "system",
)
"""Kinnor's modules that NNabla does not have: hidden from `nnabla`."""

CALLABLE = ("auto_forward", "grad", "logger", "recompute")
"""Names of `nnabla` that are not the module of that name but an object in it."""

EAGER = ("context", "parameter", "testing")
"""Modules whose names replace Kinnor's in `nnabla`, because they behave differently."""


def origin(name: str) -> str | None:
    """The name of Kinnor's module for a module of NNabla's, or None."""
    path = name.removeprefix("nnabla.")
    if path in names.NNABLA or path in names.MODULES:
        found = [names.NNABLA.get(path) or names.MODULES[path]]
    elif path.partition(".")[0] in NATIVE:
        found = []
    else:
        found = [f"{__name__}.{path}", names.target(path) or f"kinnor.{path}"]
    return next((module for module in found if names.exists(module)), None)


class Finder(MetaPathFinder):
    """Finds the modules of `nnabla` on import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module below `nnabla`. Raises ModuleNotFoundError with the reason if Kinnor lacks it."""
        if name == "nnabla_ext.cpu":
            return names.spec(name, "kinnor.compat.cpu")
        if not name.startswith("nnabla."):
            return None
        module = origin(name)
        if module is None:
            raise ModuleNotFoundError(absence(name), name=name)
        return names.spec(name, module)


def submodule(name: str) -> Any:
    """`nnabla.__getattr__`: imports a submodule on first use, because NNabla imports nearly all of its own."""
    if name in ("Module", "ProtoVariable", "Sequential"):
        return getattr(kinnor, name)
    if name.startswith("__") or origin(f"nnabla.{name}") is None:
        raise AttributeError(absence(f"nnabla.{name}"))
    return importlib.import_module(f"nnabla.{name}")


def install() -> ModuleType:
    """Put `nnabla` and `nnabla_ext` into `sys.modules`, once.

    Returns:
        The module `nnabla`.

    Raises:
        ImportError: If NNabla itself was imported before.
    """
    present = sys.modules.get("nnabla")
    if present is not None:
        if getattr(present, "__kinnor__", None) is not None:
            return present
        raise ImportError("kinnor.compat.nnabla: expected to be imported before nnabla, got it after NNabla itself")
    _core.set_dialect("nnabla")
    nnabla = package("nnabla", "Kinnor under the name of NNabla.")
    vars(nnabla).update({name: getattr(kinnor, name) for name in kinnor.__all__})
    vars(nnabla).update({"__file__": __file__, "__kinnor__": kinnor.__version__, "__getattr__": submodule})
    sys.modules["nnabla"] = nnabla
    sys.modules["nnabla_ext"] = package("nnabla_ext", "Extensions under the names that NNabla gives them.")
    sys.meta_path.insert(0, Finder())
    # Processes that `multiprocessing` spawns inherit this path. The modules in it install the names there.
    sys.path.insert(min(1, len(sys.path)), STANDINS)
    for name in CALLABLE:
        setattr(nnabla, name, getattr(importlib.import_module(f"nnabla.{name}"), name))
    for name in EAGER:
        found = importlib.import_module(f"nnabla.{name}")
        vars(nnabla).update({key: getattr(found, key) for key in found.__all__ if hasattr(kinnor, key)})
    for name, module in importlib.import_module("nnabla.backward_function").modules().items():
        place(f"nnabla.backward_function.{name}", module)
    recorder = importlib.import_module("kinnor.compat.nnabla.clear_called_flag_recorder")
    place("nnabla.testing.clear_called_flag_recorder", recorder)
    version = importlib.import_module("nnabla._version")
    vars(nnabla).update({name: getattr(version, name) for name in version.__all__})
    for name in ("functions", "parametric_functions", "solvers", "initializer"):
        importlib.import_module(f"nnabla.{name}")
    return nnabla


def place(name: str, module: ModuleType) -> None:
    """Register a module in `sys.modules` under a name, and as an attribute of its parent package."""
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)


install()
