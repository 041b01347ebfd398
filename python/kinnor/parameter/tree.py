"""The tree of parameters: nested dicts from names to variables and scopes, and each task's current scope.

`lock` guards the tree. Functions here that do not take the lock must be called under it.
"""

from __future__ import annotations

from _thread import RLock
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from .._check import LEVELS, LONGEST, check_paths, split
from .._core import ParameterError
from ..modes import check_owner, owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .._core import Variable

__all__ = [
    "LEVELS",
    "LONGEST",
    "Entered",
    "Scope",
    "at",
    "call_within",
    "check_paths",
    "enter",
    "find",
    "full_path",
    "here",
    "lock",
    "place",
    "register",
    "root",
    "split",
    "variable",
    "walk",
]

Scope: TypeAlias = "dict[str, Variable | Scope]"
"""A scope: parameters and inner scopes by name."""

lock = RLock()
"""Guards the tree."""
root: Scope = {}
"""The outermost scope."""


_Registered: TypeAlias = "list[tuple[Scope, str]] | None"
"""Parameters that an unfinished parametric function has registered, as scope and name, or None."""
_Place: TypeAlias = "tuple[Scope, object, _Place | None, _Registered]"
"""An entered scope: the scope, the object that entered it, the outer place, and a log of registered parameters.

The log lists (scope, name) of parameters that unfinished parametric functions have registered. It is None outside of
them. (A plain tuple is cheap to make in each call of a parametric function.)
"""

_place: ContextVar[_Place] = ContextVar("kinnor.parameter_scope", default=(root, None, None, None))
"""The innermost scope that this task has entered."""
place = _place.get
"""The place of this task, as a function without arguments."""


def here() -> Scope:
    """The current scope of this task."""
    return _place.get()[0]


class Entered:
    """A context manager that enters a scope. One object may be entered repeatedly, also nested and by several tasks."""

    __slots__ = ("names", "owners", "start")

    names: list[str]
    """The path from `start`."""
    start: Scope | None
    """The scope to start from; None for the current one."""
    owners: list[Any]
    """The threads and tasks that entered it."""

    def __enter__(self) -> Scope:
        outer = _place.get()
        start = self.start
        with lock:
            inner = enter("parameter_scope", outer[0] if start is None else start, self.names)
        _place.set((inner, self, outer, outer[3]))
        self.owners.append(owner())
        return inner

    def __exit__(self, *error: object) -> None:
        place = _place.get()
        if place[1] is self and place[2] is not None:  # the common case
            _place.set(place[2])
            self.owners.pop()
        else:
            self._leave()
            check_owner("parameter_scope", self.owners)

    def _leave(self) -> None:
        """Leaves the innermost scope of this task that this object has entered, even if inner scopes are open."""
        within: list[_Place] = []
        place: _Place | None = _place.get()
        while place is not None and place[1] is not self:
            within.append(place)
            place = place[2]
        if place is None:  # a generator was closed in another task
            return
        outer = place[2]
        # Scopes that were entered later stay entered.
        for scope, key, _, registered in reversed(within):
            outer = (scope, key, outer, registered)
        if outer is not None:
            _place.set(outer)


def call_within(names: list[str], function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a parametric function in the scope at the path `names`.

    If the call fails, the parameters that it has registered are removed. It can be repeated with other arguments then.
    """
    outer = _place.get()
    with lock:
        scope = enter("parameter_scope", outer[0], names)
    registered = [] if outer[3] is None else outer[3]
    first = len(registered)
    token = _place.set((scope, None, outer, registered))
    try:
        return function(*args, **kwargs)
    except BaseException:
        with lock:
            for scope, name in registered[first:]:
                scope.pop(name, None)
        del registered[first:]
        raise
    finally:
        _place.reset(token)


def enter(op: str, scope: Scope, names: list[str]) -> Scope:
    """The scope at the path `names`. Missing scopes are created."""
    for name in names:
        inner = scope.get(name)
        if inner is None:
            inner = scope[name] = {}
        elif not isinstance(inner, dict):
            raise ParameterError(f"{op}: expected a scope at {name!r} of {'/'.join(names)!r}, got a parameter")
        scope = inner
    return scope


def find(op: str, path: str) -> tuple[Scope, str]:
    """The scope of a path, and its last name. A missing scope is a new empty dict outside of the tree."""
    names = split(op, path)
    if not names:
        raise ParameterError(f"{op}: expected the name of a parameter, got {path!r}")
    scope = here()
    for name in names[:-1]:
        inner = scope.get(name, {})
        if not isinstance(inner, dict):
            raise ParameterError(f"{op}: expected a scope at {name!r} of {path!r}, got a parameter")
        scope = inner
    return scope, names[-1]


def variable(op: str, path: str) -> Variable | None:
    """The parameter at a path, or None if there is none. Raises ParameterError if a scope is there."""
    scope, name = find(op, path)
    return at(op, scope, name, path)


def at(op: str, scope: Scope, name: str, path: str) -> Variable | None:
    """The parameter `name` of a scope, or None if there is none. Raises ParameterError if `name` is a scope."""
    found = scope.get(name)
    if isinstance(found, dict):
        raise ParameterError(f"{op}: expected a parameter at {path!r}, got a scope")
    return found


def register(op: str, path: str, parameter: Variable) -> None:
    """Stores a parameter at a path. It replaces an existing parameter."""
    *names, last = split(op, path)
    outer, _, _, registered = _place.get()
    scope = enter(op, outer, names)
    if registered is not None and last not in scope:
        registered.append((scope, last))
    scope[last] = parameter


def full_path(scope: Scope, name: str) -> str:
    """The path of `name` in a scope from the root, or the name alone if the scope is not in the tree."""
    # Levels link to their parents, so that only the found path is assembled.
    levels: list[tuple[Any, str, Scope]] = [(None, "", root)]
    while levels:
        level = levels.pop()
        if level[2] is scope:
            names = [name]
            while level[0] is not None:
                names.append(level[1])
                level = level[0]
            return "/".join(reversed(names))
        levels += [(level, key, value) for key, value in level[2].items() if isinstance(value, dict)]
    return name


def walk(scope: Scope, path: str) -> Iterator[tuple[str, Variable]]:
    """All parameters of a scope and its subscopes with their paths, in order. `path` is a prefix."""
    levels = [(path, iter(scope.items()))]
    while levels:
        path, items = levels[-1]
        for name, value in items:
            key = f"{path}/{name}" if path else name
            if isinstance(value, dict):
                levels.append((key, iter(value.items())))
                break
            yield key, value
        else:
            levels.pop()
