"""NNabla's name for this library: importing this module makes `import nnabla` give Kinnor.

    python -m kinnor.compat.nnabla script.py     # runs a program that was written for NNabla
    pytest -p kinnor.compat.nnabla               # runs tests that were

or `import kinnor.compat.nnabla` before the first `import nnabla`. NNabla's modules that have a counterpart are there
under their names; importing any other fails as usual. Inside, NNabla's habits hold where they differ from Kinnor's:
forward runs go depth first, and functions refuse what is no variable with an AssertionError. docs/differences.md lists
where it differs on purpose.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import kinnor
from kinnor import _core

__all__ = ["install"]

OWN = (
    "_dropout_workaround",
    "backward_function",
    "backward_functions",
    "context",
    "dtypes",
    "functions",
    "normalization_functions",
    "parameter",
    "testing",
    "utils.converter",
    "variable",
)
"""Modules that act otherwise here than in Kinnor, or that Kinnor has under no name: files of this package."""

SHARED = {
    "_computation_graph": "kinnor._core",
    "_nd_array": "kinnor._core",
    "_variable": "kinnor._core",
    "auto_forward": "kinnor.modes",
    "callback": "kinnor.hooks",
    "config": "kinnor.config",
    "core.graph_def": "kinnor.graph_def",
    "ext_utils": "kinnor.ext_utils",
    "function": "kinnor.function",
    "grad": "kinnor.symbolic",
    "initializer": "kinnor.initializer",
    "logger": "kinnor.logger",
    "monitor": "kinnor.monitor",
    "parametric_functions": "kinnor.parametric_functions",
    "random": "kinnor.random",
    "recompute": "kinnor.modes",
    "solver": "kinnor.solver",
    "solvers": "kinnor.solvers",
    "utils": "kinnor.utils",
    "utils.data_iterator": "kinnor.utils.data_iterator",
    "utils.data_source": "kinnor.utils.data_source",
    "utils.data_source_loader": "kinnor.utils.data_source_loader",
    "utils.data_source_implements": "kinnor.utils.data_source_implements",
    "utils.dlpack": "kinnor.utils.dlpack",
    "utils.learning_rate_scheduler": "kinnor.utils.learning_rate_scheduler",
    "utils.load": "kinnor.utils.load",
    "utils.nnabla_pb2": "kinnor.utils.nnabla_pb2",
    "utils.nnp_graph": "kinnor.utils.nnp_graph",
    "utils.save": "kinnor.utils.save",
}
"""Modules that are Kinnor's own, by NNabla's name."""

CALLABLE = ("auto_forward", "grad", "logger", "recompute")
"""Names that in `nnabla` itself are an object of the module of that name."""


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
    nnabla = package("nnabla", "Kinnor under the name of NNabla.")
    vars(nnabla).update({name: getattr(kinnor, name) for name in kinnor.__all__})
    vars(nnabla)["__kinnor__"] = kinnor.__version__
    sys.modules["nnabla"] = nnabla
    place("nnabla.core", package("nnabla.core", "What NNabla's graphs are described by."))
    for name, origin in SHARED.items():
        place(f"nnabla.{name}", importlib.import_module(origin))
    for name in OWN:
        place(f"nnabla.{name}", importlib.import_module(f"{__name__}.{name}"))
    for name, module in sys.modules["nnabla.backward_function"].modules().items():
        place(f"nnabla.backward_function.{name}", module)
    nnabla.graph_def = sys.modules["nnabla.core.graph_def"]  # type: ignore[attr-defined]
    vars(nnabla)["ProtoVariable"] = kinnor.ProtoVariable
    for name in CALLABLE:
        setattr(nnabla, name, getattr(sys.modules[f"nnabla.{name}"], name))
    for module in ("context", "parameter", "testing"):
        found = sys.modules[f"nnabla.{module}"]
        vars(nnabla).update({name: getattr(found, name) for name in found.__all__ if hasattr(nnabla, name)})
    sys.modules["nnabla_ext"] = package("nnabla_ext", "Extensions under the names that NNabla gives them.")
    place("nnabla.testing.clear_called_flag_recorder", sys.modules["nnabla.testing"].clear_called_flag_recorder)
    place("nnabla_ext.cpu", importlib.import_module("kinnor.cpu"))
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
