"""Kinnor: deep learning on CPUs, with the API of NNabla.

>>> import numpy as np
>>> import kinnor as nn, kinnor.functions as F
>>> x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
>>> y = F.sum(x * x)
>>> y.forward()
>>> y.backward()
>>> x.g.tolist()
[2.0, 4.0]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._core import (
    ArgumentError,
    AxisError,
    BudgetError,
    CallError,
    ClearedError,
    CommunicatorBackwardCallback,
    DTypeError,
    Error,
    GraphError,
    IndexRangeError,
    InternalError,
    ModifiedError,
    NdArray,
    NotComputedError,
    ParameterError,
    RangeError,
    ShapeError,
    UnsupportedError,
    Variable,
    __version__,
    clear_memory_cache,
    forward_all,
    get_conv_algorithm,
    get_matmul_precision,
    get_num_threads,
    memory_stats,
    reset_peak_memory,
    set_conv_algorithm,
    set_matmul_precision,
    set_num_threads,
)
from ._foreign_attributes import attach as _attach_foreign_attributes
from .context import Context, autocast, context_scope, get_current_context, set_default_context
from .display import attach as _attach_display
from .modes import (
    auto_forward,
    get_auto_forward,
    get_global_recompute,
    memory_budget,
    recompute,
    recompute_fn,
    set_auto_forward,
    set_global_recompute,
)
from .parameter import (
    clear_parameters,
    get_current_parameter_scope,
    get_parameters,
    load_parameters,
    parameter_scope,
    save_parameters,
)
from .system import (
    array_classes,
    available_contexts,
    prefer_cached_array,
    reset_array_preference,
    show_config,
)
from .system import say_slowness as _say_slowness

_attach_display()
_attach_foreign_attributes()
_say_slowness()

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from . import autodiff as autodiff
    from . import checkpoint as checkpoint
    from . import communicators as communicators
    from . import compat as compat
    from . import config as config
    from . import context as context
    from . import core as core
    from . import data as data
    from . import datasets as datasets
    from . import display as display
    from . import distributed as distributed
    from . import experimental as experimental
    from . import ext_utils as ext_utils
    from . import function as function
    from . import functions as functions
    from . import grad_mode as grad_mode
    from . import graph_def as graph_def
    from . import hooks as hooks
    from . import initializer as initializer
    from . import learning_rate_scheduler as learning_rate_scheduler
    from . import model as model
    from . import models as models
    from . import modes as modes
    from . import monitor as monitor
    from . import nnp as nnp
    from . import onnx as onnx
    from . import parameter as parameter
    from . import parametric_functions as parametric_functions
    from . import pictures as pictures
    from . import placement as placement
    from . import profiling as profiling
    from . import random as random
    from . import solver as solver
    from . import solvers as solvers
    from . import system as system
    from . import tensorboard as tensorboard
    from . import testing as testing
    from . import utils as utils
    from .checkpoint import load_checkpoint as load_checkpoint
    from .checkpoint import save_checkpoint as save_checkpoint
    from .core import Module as Module
    from .core import ModuleDict as ModuleDict
    from .core import ModuleList as ModuleList
    from .core import Sequential as Sequential
    from .files.on_demand import open_parameters as open_parameters
    from .grad_mode import no_grad as no_grad
    from .hooks import set_function_post_hook as set_function_post_hook
    from .hooks import set_function_pre_hook as set_function_pre_hook
    from .hooks import set_solver_post_hook as set_solver_post_hook
    from .hooks import set_solver_pre_hook as set_solver_pre_hook
    from .hooks import unset_function_post_hook as unset_function_post_hook
    from .hooks import unset_function_pre_hook as unset_function_pre_hook
    from .hooks import unset_solver_post_hook as unset_solver_post_hook
    from .hooks import unset_solver_pre_hook as unset_solver_pre_hook
    from .logger import logger as logger
    from .model import Model as Model
    from .model import load as load
    from .model import save as save
    from .nnp import ProtoVariable as ProtoVariable
    from .pictures import show as show
    from .placement import place as place
    from .profiling import profile as profile
    from .random import seed as seed
    from .report import plan_report as plan_report
    from .symbolic import grad as grad
    from .training import fit as fit

__all__ = [
    "ArgumentError",
    "AxisError",
    "BudgetError",
    "CallError",
    "ClearedError",
    "CommunicatorBackwardCallback",
    "Context",
    "DTypeError",
    "Error",
    "GraphError",
    "IndexRangeError",
    "InternalError",
    "ModifiedError",
    "NdArray",
    "NotComputedError",
    "ParameterError",
    "RangeError",
    "ShapeError",
    "UnsupportedError",
    "Variable",
    "__version__",
    "array_classes",
    "auto_forward",
    "autocast",
    "available_contexts",
    "clear_memory_cache",
    "clear_parameters",
    "context_scope",
    "forward_all",
    "get_auto_forward",
    "get_conv_algorithm",
    "get_current_context",
    "get_current_parameter_scope",
    "get_global_recompute",
    "get_matmul_precision",
    "get_num_threads",
    "get_parameters",
    "grad",
    "load_checkpoint",
    "load_parameters",
    "memory_budget",
    "memory_stats",
    "no_grad",
    "open_parameters",
    "parameter_scope",
    "place",
    "plan_report",
    "prefer_cached_array",
    "recompute",
    "recompute_fn",
    "reset_array_preference",
    "reset_peak_memory",
    "save_checkpoint",
    "save_parameters",
    "seed",
    "set_auto_forward",
    "set_conv_algorithm",
    "set_default_context",
    "set_function_post_hook",
    "set_function_pre_hook",
    "set_global_recompute",
    "set_matmul_precision",
    "set_num_threads",
    "set_solver_post_hook",
    "set_solver_pre_hook",
    "show_config",
    "unset_function_post_hook",
    "unset_function_pre_hook",
    "unset_solver_post_hook",
    "unset_solver_pre_hook",
]

LAZY = (
    "autodiff",
    "compat",
    "communicators",
    "config",
    "core",
    "data",
    "datasets",
    "distributed",
    "experimental",
    "ext_utils",
    "function",
    "functions",
    "grad_mode",
    "graph_def",
    "hooks",
    "initializer",
    "layers",
    "learning_rate_scheduler",
    "logger",
    "model",
    "models",
    "monitor",
    "nnp",
    "onnx",
    "parametric_functions",
    "pictures",
    "placement",
    "profiling",
    "random",
    "solver",
    "solvers",
    "tensorboard",
    "testing",
    "training",
    "utils",
)
"""Submodules that are imported on first access, so that importing Kinnor stays fast."""


LAZY_NAMES = {
    "Model": "model",
    "Module": "core",
    "ModuleDict": "core",
    "ModuleList": "core",
    "ProtoVariable": "nnp",
    "Sequential": "core",
    "fit": "training",
    "grad": "symbolic",
    "load": "model",
    "load_checkpoint": "checkpoint",
    "no_grad": "grad_mode",
    "open_parameters": "files.on_demand",
    "place": "placement",
    "plan_report": "report",
    "profile": "profiling",
    "save": "model",
    "save_checkpoint": "checkpoint",
    "seed": "random",
    "set_function_post_hook": "hooks",
    "set_function_pre_hook": "hooks",
    "set_solver_post_hook": "hooks",
    "set_solver_pre_hook": "hooks",
    "show": "pictures",
    "unset_function_post_hook": "hooks",
    "unset_function_pre_hook": "hooks",
    "unset_solver_post_hook": "hooks",
    "unset_solver_pre_hook": "hooks",
}
"""Names of the package that are imported from a submodule on first access."""


class _Paths:
    """Finds modules by the paths that NNabla's programs use. The table is in `compat/names.py`."""

    SERVED = frozenset(
        {
            "autolog",
            "communicators",
            "contrib",
            "core",
            "cpu",
            "experimental",
            "ext_utils",
            "graph_def",
            "mlflow_save_load_model",
            "models",
            "solver",
            "testing",
            "utils",
        }
    )
    """The first names of these paths."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns how to load a module below `kinnor` by another path than its own; None for any other module."""
        if not name.startswith("kinnor."):
            return None
        if name[7:].removeprefix("compat.").partition(".")[0] not in cls.SERVED:
            return None
        from .compat import names

        return names.find(name)


class _ForeignPaths:
    """Says what takes the place of modules of other libraries that a program imports from Kinnor."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError with advice if an import statement, and no search, asks for such a module."""
        if name.startswith("kinnor.") and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            from ._suggest import absent_module

            absent_module(name)


# Before the finder of files, which would load the modules of a package a second time under its other name.
sys.meta_path.insert(0, _Paths)
sys.meta_path.append(_ForeignPaths)


if not TYPE_CHECKING:  # Type checkers see the names themselves, and report any other.

    def __getattr__(name: str) -> Any:
        """Imports a module, or the module that defines a name, on first use."""
        if name in LAZY or name in LAZY_NAMES:
            import importlib

            if name in LAZY_NAMES:
                found = getattr(importlib.import_module(f"{__name__}.{LAZY_NAMES[name]}"), name)
                globals()[name] = found  # The next access takes no longer than that to other names.
                return found
            module = importlib.import_module(f"{__name__}.{name}")
            # NNabla has a logger object under this name.
            return module.logger if name == "logger" else module
        if name.startswith("_"):
            raise AttributeError(f"module 'kinnor' has no attribute '{name}'")
        from ._suggest import absent

        return absent(f"kinnor.{name}", __dir__())


def __dir__() -> list[str]:
    """Lists the names, with the modules that are imported on first use."""
    return sorted([*globals(), *LAZY, *LAZY_NAMES])
