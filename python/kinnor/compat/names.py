"""The modules that NNabla's paths stand for, found when they are imported as `nnabla.*` or `kinnor.*`.

A row holds for the modules below it as well, unless they have rows of their own. Each module is loaded once, under its
own name, however many paths lead to it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader
from importlib.util import spec_from_loader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["MODULES", "NNABLA", "find", "spec", "target"]

MODULES = {
    "autolog": "kinnor.compat.autolog",
    "communicators": "kinnor.distributed",
    "contrib": "kinnor.compat.contrib",
    "core.modules": "kinnor.compat.modules",
    "cpu": "kinnor.compat.cpu",
    "experimental": "kinnor.compat.experimental",
    "experimental.framework": "kinnor.training",
    "experimental.framework.evaluator": "kinnor.training.loop",
    "experimental.framework.trainer": "kinnor.training.loop",
    "experimental.framework.updater": "kinnor.training.loop",
    "experimental.graph_converters.layers": "kinnor.rewrite.patterns",
    "experimental.tb_graph_writer": "kinnor.tensorboard",
    "ext_utils": "kinnor.compat.ext_utils",
    "graph_def": "kinnor.nnp",
    "graph_def.affine": "kinnor.compat.utils.affine",
    "mlflow_save_load_model": "kinnor.compat.mlflow_save_load_model",
    "models": "kinnor.compat.models",
    "solver": "kinnor.solvers",
    "testing": "kinnor.compat.testing",
    "utils": "kinnor.compat.utils",
    "utils.cache_data_source": "kinnor.data.cache_data_source",
    "utils.csv_data_source": "kinnor.data.csv_data_source",
    "utils.data_iterator": "kinnor.data.data_iterator",
    "utils.data_source_implements": "kinnor.data.data_source_implements",
    "utils.data_source_loader": "kinnor.data.data_source_loader",
    "utils.dlpack": "kinnor.dlpack",
    "utils.download": "kinnor.data.download",
    "utils.factorization.cpd": "kinnor.parametric_functions.cpd",
    "utils.learning_rate_scheduler": "kinnor.learning_rate_scheduler",
}
"""Paths below `nnabla` and below `kinnor`, and the modules that they stand for."""

NNABLA = {
    "_init": "kinnor.compat.cpu",
    "_computation_graph": "kinnor._core",
    "_nd_array": "kinnor._core",
    "_variable": "kinnor._core",
    "auto_forward": "kinnor.modes",
    "callback": "kinnor.hooks",
    "communicator": "kinnor.distributed",
    "core.graph_def": "kinnor.nnp",
    "core.graph_optimizer": "kinnor.compat.nnabla.graph_optimizer",
    "grad": "kinnor.symbolic",
    "lms": "kinnor.compat.nnabla.lms",
    "recompute": "kinnor.modes",
    "testing": "kinnor.compat.nnabla.testing",
}
"""Paths below `nnabla` only: below `kinnor` they are functions, other modules or nothing."""


def target(path: str) -> str | None:
    """Returns the module that a path below `nnabla` or `kinnor` stands for; None if no row leads to one."""
    above = path
    while above not in MODULES:
        above, _, _ = above.rpartition(".")
        if not above:
            return None
    return MODULES[above] + path[len(above) :]


def exists(module: str) -> bool:
    """True if there is a module of this name."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Nor is there a package for it.
        return False


def find(name: str) -> ModuleSpec | None:
    """Returns how to load a module of `kinnor` by one of the paths in `MODULES`; None for any other name."""
    found = target(name.removeprefix("kinnor.").removeprefix("compat."))
    return spec(name, found) if found is not None and found != name and exists(found) else None


def spec(name: str, module: str) -> ModuleSpec | None:
    """Returns how to load a module by another name than its own."""
    return spec_from_loader(name, Alias(module))


class Alias(Loader):
    """Loads a module for another name."""

    def __init__(self, module: str) -> None:
        self.name = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module itself."""
        module = importlib.import_module(self.name)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own specification back, which the import system has replaced."""
        module.__spec__ = self.spec
