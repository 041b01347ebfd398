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
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor import _core
from kinnor._suggest import absence

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["STANDINS", "VERSION", "install"]

VERSION = "1.39.0"
"""NNabla's version whose API this is, for programs that ask for it. Kinnor's own is `nnabla.__kinnor__`."""

STANDINS = str(Path(__file__).parent / "_standins")
"""A folder with modules `nnabla` and `nnabla_ext` that import this package."""

ALIASES = {
    "_init": "kinnor.cpu",
    "_computation_graph": "kinnor._core",
    "_nd_array": "kinnor._core",
    "_variable": "kinnor._core",
    "auto_forward": "kinnor.modes",
    "callback": "kinnor.hooks",
    "communicator": "kinnor.communicators",
    "core.graph_def": "kinnor.graph_def",
    "core.graph_optimizer": "kinnor.compat.nnabla.graph_optimizer",
    "grad": "kinnor.symbolic",
    "lms": "kinnor.compat.nnabla.lms",
    "recompute": "kinnor.modes",
    "utils": "kinnor.utils",
}
"""Modules that are called otherwise here. Every other one is the file of its name in this package, if there is one, or
else Kinnor's own."""

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
    """The module that NNabla's name of a module stands for, if there is one."""
    path = name.removeprefix("nnabla.")
    if path in ALIASES:
        found = [ALIASES[path]]
    elif path.partition(".")[0] in NATIVE:
        found = []
    else:
        found = [f"{__name__}.{path}", f"kinnor.{path}"]
    return next((module for module in found if exists(module)), None)


def exists(module: str) -> bool:
    """Whether there is a module of a name."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Nor a package that it would be in.
        return False


class Alias(Loader):
    """Gives a module that is there under another name."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: it keeps its own name."""
        module.__spec__ = self.spec


class Finder(MetaPathFinder):
    """Finds NNabla's modules by name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What `import` is to load for a name below `nnabla`; an error that says why there is nothing."""
        if name == "nnabla_ext.cpu":
            return spec_from_loader(name, Alias(importlib.import_module("kinnor.cpu")))
        if not name.startswith("nnabla."):
            return None
        module = origin(name)
        if module is None:
            raise ModuleNotFoundError(absence(name), name=name)
        return spec_from_loader(name, Alias(importlib.import_module(module)))


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
    _core.set_dialect("nnabla")
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


def package(name: str, doc: str) -> ModuleType:
    """A package without files."""
    module = ModuleType(name, doc)
    module.__path__ = []
    return module


def place(name: str, module: ModuleType) -> None:
    """Make a module known under a name, and as an attribute of the package that the name is in."""
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)


install()
