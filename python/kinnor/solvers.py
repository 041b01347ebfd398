"""Solvers: classes that update parameters by their gradients, such as `Sgd` and `Adam`.

The classes, with signatures and docstrings, are generated from the registry of the core.

    >>> import kinnor as nn, kinnor.functions as F, kinnor.solvers as S
    >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    >>> solver = S.Sgd(lr=0.5)
    >>> solver.set_parameters({"w": w})
    >>> loss = F.sum(w * w)
    >>> loss.forward()
    >>> solver.zero_grad()
    >>> loss.backward()
    >>> solver.update()
    >>> w.d.tolist()
    [0.0, 0.0]
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from . import _core
from ._core import CallError
from ._suggest import absence, question
from .solver import Solver, SolverState


def _class(name: str, doc: str, args: list[tuple[str, str, Any]]) -> type[Solver]:
    """The solver class of a row of the registry. `args` lists name, type and default of each argument."""

    def init(self: Solver, *args: Any, **kwargs: Any) -> None:
        """Checks the names of arguments, and makes the core solver."""
        unknown = [key for key in kwargs if key not in signature.parameters]
        if unknown:
            nearest = question(unknown[0], signature.parameters)
            known = ", ".join(signature.parameters)
            raise CallError(f"{name}: expected ({known}), got an argument '{unknown[0]}'{nearest}")
        _core.Solver.__init__(self, name, *args, **kwargs)

    parameters = [Parameter(a, Parameter.POSITIONAL_OR_KEYWORD, default=d, annotation=t) for a, t, d in args]
    signature = Signature(parameters)
    body = {"__doc__": doc, "__init__": init, "__module__": __name__, "__signature__": signature}
    return type(name, (Solver,), body)


_classes = {row[0]: _class(*row) for row in _core._solvers()}
globals().update(_classes)
__all__ = ["Solver", "SolverState", *_classes]


def __getattr__(name: str) -> type[Solver]:
    # The signature also lets type checkers accept the generated classes.
    raise AttributeError(absence(f"{__name__}.{name}", __all__))
