"""What communicators are given beside arrays, checked: groups, contexts and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _check
from .._core import CallError, Variable
from ..context import Context

__all__ = ["name_and_ranks", "names_of", "parameters_of", "variables"]


def name_and_ranks(op: str, given: Any) -> tuple[str, list[int]]:
    """A name and whole numbers, as `new_group` takes them."""
    name, ranks = _pair(op, "name_ranks", given, "a name and a list of ranks")
    if not isinstance(ranks, (list, tuple, range, np.ndarray)):
        raise CallError(f"{op}: expected the ranks to be a list, got {ranks!r}")
    return _check.text(op, "name", name), [_check.whole(op, "rank", rank) for rank in ranks]


def parameters_of(op: str, given: Any) -> tuple[Context, dict[str, Variable]]:
    """A context and variables by their names."""
    context, parameters = _context_and(op, given, "variables by their names")
    return context, variables(op, parameters)


def names_of(op: str, given: Any) -> tuple[Context, list[str]]:
    """A context and names of parameters."""
    context, names = _context_and(op, given, "names of parameters")
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise CallError(f"{op}: expected a list of names of parameters, got {names!r}")
    return context, [_check.text(op, "name", name) for name in _check.items(op, "names", names)]


def variables(op: str, given: Any) -> dict[str, Variable]:
    """Variables by their names."""
    if not isinstance(given, Mapping):
        raise CallError(f"{op}: expected variables by their names, got {given!r}")
    for name, variable in given.items():
        if not isinstance(name, str) or not isinstance(variable, Variable):
            raise CallError(f"{op}: expected variables by their names, got {variable!r} as {name!r}")
    return dict(given)


def _context_and(op: str, given: Any, what: str) -> tuple[Context, Any]:
    context, rest = _pair(op, "ctx_param_dict", given, f"a context and {what}")
    if not isinstance(context, Context):
        raise CallError(f"{op}: expected a Context, got {context!r}")
    return context, rest


def _pair(op: str, name: str, given: Any, what: str) -> tuple[Any, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    raise CallError(f"{op}: expected `{name}` to be {what}, got {given!r}")
