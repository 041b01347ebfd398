"""Automatic differentiation with PyTorch's API, to any order.

`backward` adds to the gradients of leaves, `grad` returns gradients. Both work on graphs that were computed eagerly or
have run forward. NNabla's counterparts are `Variable.backward` and `nn.grad`.

>>> import kinnor as nn
>>> from kinnor import autodiff
>>> with nn.auto_forward():
...     x = nn.Variable.from_numpy_array([2.0, 3.0], need_grad=True)
...     (gx,) = autodiff.grad(nn.functions.sum(x ** 3), x, create_graph=True)
...     autodiff.backward(nn.functions.sum(gx))
>>> gx.d.tolist(), x.g.tolist()
([12.0, 27.0], [12.0, 18.0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import GraphFreedError, ModifiedError, RecomputeError
from ..grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from . import graph
    from .anomaly import detect_anomaly
    from .check import gradcheck, gradgradcheck
    from .engine import backward, grad
    from .functional import hessian, jacobian, jvp, value_and_grad, vjp

__all__ = [
    "GraphFreedError",
    "ModifiedError",
    "RecomputeError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "hessian",
    "is_grad_enabled",
    "jacobian",
    "jvp",
    "no_grad",
    "set_grad_enabled",
    "value_and_grad",
    "vjp",
]

LAZY = {
    "anomaly": ("detect_anomaly",),
    "check": ("gradcheck", "gradgradcheck"),
    "engine": ("backward", "grad"),
    "functional": ("hessian", "jacobian", "jvp", "value_and_grad", "vjp"),
    "graph": (),
}
"""Modules that are imported on first access to them or their names."""


def __getattr__(name: str) -> Any:
    """Imports the module that defines a name on first use."""
    import importlib

    for module, names in LAZY.items():
        if name == module or name in names:
            loaded = importlib.import_module(f"{__name__}.{module}")
            globals()[name] = loaded if name == module else getattr(loaded, name)
            return globals()[name]
    raise AttributeError(f"module 'kinnor.autodiff' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Lists the public names, imported or not."""
    return __all__
