"""NNabla's name for this library: importing this module makes `import nnabla` give Kinnor.

    python -m kinnor.compat.nnabla script.py     # runs a program that was written for NNabla, or -m module, or -c text
    pytest -p kinnor.compat.nnabla               # runs tests that were

or `import kinnor.compat.nnabla` before the first `import nnabla`. NNabla's modules that have a counterpart are there
under their names, found when they are imported; importing any other fails, and says that it is Kinnor that lacks it.
Inside, NNabla's habits hold where they differ from Kinnor's: forward runs go depth first, functions refuse what is no
variable with an AssertionError, and mistakes that NNabla lets pass do pass. docs/differences.md lists where it differs
on purpose.
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
"""NNabla's version whose API this is, for programs that ask for it. Kinnor's own is `nnabla.__kinnor__`."""

STANDINS = str(Path(__file__).parent / "_standins")
"""A folder with modules `nnabla` and `nnabla_ext` that import this package."""

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
"""Modules of Kinnor's that NNabla has not."""

CALLABLE = ("auto_forward", "grad", "logger", "recompute")
"""Names that in `nnabla` itself are an object of the module of that name."""

EAGER = ("context", "parameter", "testing")
"""Modules whose names stand in `nnabla` too, where they act otherwise than Kinnor's."""


def origin(name: str) -> str | None:
    """Returns the module of Kinnor that NNabla's name of a module stands for; None if there is none.

    A path without a row of its own is the file with its name in this package, if there is one, or Kinnor's own.
    """
    path = name.removeprefix("nnabla.")
    if path in names.NNABLA or path in names.MODULES:
        found = [names.NNABLA.get(path) or names.MODULES[path]]
    elif path.partition(".")[0] in NATIVE:
        found = []
    else:
        found = [f"{__name__}.{path}", names.target(path) or f"kinnor.{path}"]
    return next((module for module in found if names.exists(module)), None)


class Finder(MetaPathFinder):
    """Finds NNabla's modules by name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What `import` is to load for a name below `nnabla`; an error that says why there is nothing."""
        if name == "nnabla_ext.cpu":
            return names.spec(name, "kinnor.compat.cpu")
        if not name.startswith("nnabla."):
            return None
        module = origin(name)
        if module is None:
            raise ModuleNotFoundError(absence(name), name=name)
        return names.spec(name, module)


def submodule(name: str) -> Any:
    """A name of `nnabla` that is not there yet: a module of it, as NNabla imports nearly all of its own."""
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
    _core.set_depth_first(True)
    _core.set_check_saved("ignore")
    _core.set_leaves_in_place(True)
    _core.set_unwary(True)
    nnabla = package("nnabla", "Kinnor under the name of NNabla.")
    vars(nnabla).update({name: getattr(kinnor, name) for name in kinnor.__all__})
    vars(nnabla).update({"__kinnor__": kinnor.__version__, "__getattr__": submodule})
    sys.modules["nnabla"] = nnabla
    sys.modules["nnabla_ext"] = package("nnabla_ext", "Extensions under the names that NNabla gives them.")
    sys.meta_path.insert(0, Finder())
    # Processes that `multiprocessing` spawns get this path, and find there what puts the names into place.
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
    """Make a module known under a name, and as an attribute of the package that the name is in."""
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)


install()
