"""Global hooks: called before and after every function that runs, and every parameter update of a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._core import CallError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "set_function_post_hook",
    "set_function_pre_hook",
    "set_solver_post_hook",
    "set_solver_pre_hook",
    "unset_function_post_hook",
    "unset_function_pre_hook",
    "unset_solver_post_hook",
    "unset_solver_pre_hook",
]

SOLVER: dict[str, dict[str, Callable[[], Any]]] = {"pre": {}, "post": {}}
"""Hooks of solvers, by time and key, in the order of registration."""

BEFORE, AFTER = 0, 1
"""The time of a hook: before or after each function."""


def warn(text: str) -> None:
    """Logs a warning."""
    from .logger import logger

    logger.warning(text)


def set_function_pre_hook(key: str, function_pre_hook: Callable[[Any], Any] | None) -> None:
    """Call a function before each function that runs, in every forward and backward run.

    Args:
        key: A name to remove it by; one that is taken is warned of and nothing changes.
        function_pre_hook: Called with the function.
    """
    set_function(BEFORE, key, function_pre_hook)


def set_function_post_hook(key: str, function_post_hook: Callable[[Any], Any] | None) -> None:
    """Call a function after each function that ran, in every forward and backward run.

    Args:
        key: A name to remove it by; one that is taken is warned of and nothing changes.
        function_post_hook: Called with the function.
    """
    set_function(AFTER, key, function_post_hook)


def unset_function_pre_hook(key: str) -> None:
    """Remove a hook that `set_function_pre_hook` set.

    Args:
        key: Its name. An unknown name logs a warning.
    """
    unset_function(BEFORE, key)


def unset_function_post_hook(key: str) -> None:
    """Remove a hook that `set_function_post_hook` set.

    Args:
        key: Its name. An unknown name logs a warning.
    """
    unset_function(AFTER, key)


def set_solver_pre_hook(key: str, solver_pre_hook: Callable[[], Any] | None) -> None:
    """Call a function before each parameter's step of every solver.

    Args:
        key: A name to remove it by; one that is taken is warned of and nothing changes.
        solver_pre_hook: Called without arguments.
    """
    set_solver("pre", key, solver_pre_hook)


def set_solver_post_hook(key: str, solver_post_hook: Callable[[], Any] | None) -> None:
    """Call a function after each parameter's step of every solver.

    Args:
        key: A name to remove it by; one that is taken is warned of and nothing changes.
        solver_post_hook: Called without arguments.
    """
    set_solver("post", key, solver_post_hook)


def unset_solver_pre_hook(key: str) -> None:
    """Remove a hook that `set_solver_pre_hook` set.

    Args:
        key: Its name. An unknown name logs a warning.
    """
    unset_solver("pre", key)


def unset_solver_post_hook(key: str) -> None:
    """Remove a hook that `set_solver_post_hook` set.

    Args:
        key: Its name. An unknown name logs a warning.
    """
    unset_solver("post", key)


def set_function(when: int, key: str, hook: Callable[[Any], Any] | None) -> None:
    """Registers a function hook. A taken key logs a warning and changes nothing."""
    if hook is None:
        return
    if not callable(hook):
        raise CallError(f"function hook: expected something to call, got {hook!r}")
    if not _core.set_global_hook(when, key, hook):
        warn(f"function hook: the key '{key}' is taken, nothing was set")


def unset_function(when: int, key: str) -> None:
    """Removes a function hook. An unknown key logs a warning."""
    if not _core.unset_global_hook(when, key):
        warn(f"function hook: there is no key '{key}', nothing was removed")


def set_solver(when: str, key: str, hook: Callable[[], Any] | None) -> None:
    """Registers a solver hook. A taken key logs a warning and changes nothing."""
    if hook is None:
        return
    if not callable(hook):
        raise CallError(f"solver hook: expected something to call, got {hook!r}")
    if key in SOLVER[when]:
        warn(f"solver hook: the key '{key}' is taken, nothing was set")
    else:
        SOLVER[when][key] = hook


def unset_solver(when: str, key: str) -> None:
    """Removes a solver hook. An unknown key logs a warning."""
    if SOLVER[when].pop(key, None) is None:
        warn(f"solver hook: there is no key '{key}', nothing was removed")
