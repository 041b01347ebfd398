"""Calls of every public name of the package, and uses of their results."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

import numpy as np
from odd_arguments import anything, variable

import kinnor as nn
import kinnor.functions as F
from kinnor.autolog import stop_autolog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odd_arguments import Choose

INNER = (
    "cli", "compat.cli.", "compat.mlflow_save_load_model", "compat.models.imagenet.", "compat.names", "compat.nnabla",
    "compat.onnxruntime", "compat.utils.affine", "compat.utils.network_passes", "compat.utils.nnabla_pb2",
    "compat.utils.solver_messages", "compat.utils.times_alone", "files", "launch",
    "nnp.batch", "nnp.graph", "nnp.initial", "nnp.loops", "nnp.lowering", "nnp.messages",
    "nnp.network", "nnp.nodes", "nnp.tracing", "onnx.", "pictures.", "placement",
)  # fmt: skip
"""Modules to skip: internal ones, entry points, NNabla's behaviour for the whole process, and MLflow's store."""


def modules(path: Iterable[str] = nn.__path__, within: str = "") -> list[str]:
    """Returns the names of all public modules, relative to the package."""
    found = []
    for module in pkgutil.iter_modules(path):
        name = within + module.name
        if not name.startswith(INNER) and not module.name.startswith("_"):  # private modules are not imported either
            found.append(name)
            if module.ispkg:
                found += modules(importlib.import_module(f"kinnor.{name}").__path__, f"{name}.")
    return sorted(found)


def names() -> dict[str, Any]:
    """Returns all public callables by name."""
    found = {f"nn.{name}": getattr(nn, name) for name in nn.__all__}
    for module in modules():
        loaded = importlib.import_module(f"kinnor.{module}")
        for name in getattr(loaded, "__all__", ()):
            f = getattr(loaded, name)
            if all(f is not known for known in found.values()):
                found[f"{module}.{name}"] = f
    return {name: f for name, f in found.items() if callable(f) and not is_exception(f)}


def is_exception(f: Any) -> bool:
    """True if `f` is an exception class."""
    return isinstance(f, type) and issubclass(f, BaseException)


def square(x: Any, *rest: Any) -> Any:
    """A function to pass as a callback argument."""
    return F.sum(x * x) if isinstance(x, (nn.Variable, nn.NdArray)) else x


def example(i: int) -> tuple[np.ndarray, ...]:
    """Returns an example of a data source."""
    return np.full(3, i, np.float32), np.array([i])


def fails(*args: Any, **kwargs: Any) -> Any:
    """A callback that always raises."""
    raise RuntimeError("as it should")


def argument(choose: Choose) -> Any:
    """Returns an argument for any public callable."""
    kind = choose(["any", "any", "any", "variable", "variables", "computed", "f", "context", "rng", "parameters"])
    if kind == "variable":
        return variable(choose)
    if kind == "variables":
        return [variable(choose) for _ in range(choose([0, 1, 2, 3]))]
    if kind == "computed":
        x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
        return F.sum(F.tanh(x * 2.0))
    if kind == "f":
        return choose([square, example, fails, F.tanh, print, nn.Variable, None])
    if kind == "context":
        return choose([nn.Context(), nn.Context(["cpu:double"]), nn.Context([":"])])
    if kind == "rng":
        return choose([np.random.RandomState(0), np.random.default_rng(0)])
    if kind == "parameters":
        return choose([nn.get_parameters(), {"a": variable(choose)}, {"": variable(choose)}])
    return anything(choose)


def use(throw: Callable[..., Any], choose: Choose, what: str, y: Any) -> None:
    """Uses a result: enters it, iterates over it or calls it."""
    if isinstance(y, (int, float, str, bytes, list, tuple, dict, type(None), np.ndarray)):
        return
    if hasattr(type(y), "__enter__"):
        with contextlib.suppress(Exception), y:
            throw(f"within {what}", F.tanh, nn.Variable((2,)))
    if hasattr(type(y), "__next__"):
        throw(f"next of {what}", next, y, None)
    if callable(y) and not isinstance(y, type):
        throw(f"call of {what}", y, *(argument(choose) for _ in range(choose([0, 1, 1, 2]))))
    if (type(y).__module__ or "").startswith("kinnor") and not isinstance(y, (nn.Variable, nn.NdArray)):
        members = [n for n in dir(y) if not n.startswith("_") and n != "abort"]  # `abort` ends the process
        for _ in range(min(len(members), 3)):
            name = choose(members)
            member = throw(f"{what}.{name}", getattr, y, name)
            if callable(member):
                throw(f"{what}.{name}", member, *(argument(choose) for _ in range(choose([0, 1, 1, 2, 3]))))


def restore() -> None:
    """Restores the global state that a call may have changed."""
    for unset in (nn.unset_function_pre_hook, nn.unset_function_post_hook):
        unset("x")
    for unset in (nn.unset_solver_pre_hook, nn.unset_solver_post_hook):
        unset("x")
    nn.set_auto_forward(False)
    nn.set_global_recompute(False)
    nn.set_default_context(nn.Context())
    nn.autodiff.set_grad_enabled(True)
    nn.set_num_threads(1)
    nn.clear_parameters()
    stop_autolog()
