"""`nn.profile`: times the functions, updates and data loading in a block of a program."""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack, contextmanager
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import CallError, Variable
from .record import Lane, Recorder
from .result import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["profile", "timed"]

PACKAGE = __name__.partition(".")[0]
"""The name of Kinnor's package."""
KEY = "kinnor.profile"
"""The name of the hook that makes the engine run functions without fusion."""

OPERATORS = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__neg__", "__getitem__"),
)
"""Methods of operators, which the profiler replaces."""

UPDATES = (
    *("update", "zero_grad", "weight_decay", "clip_grad_by_norm", "clip_grad_by_global_norm", "scale_grad"),
    *("check_inf_grad", "check_nan_grad", "check_inf_or_nan_grad"),
)
"""Methods of solvers, which the profiler replaces."""

ONE_AT_A_TIME = Lock()
"""Held while a profile runs."""


@contextmanager
def timed(alone: bool) -> Iterator[None]:
    """Enable the engine's timing in a `with` block. The caller reads the times by `_core.take_timings`.

    Args:
        alone: Whether to run functions without fusion.

    Raises:
        CallError: If another profile is active.
    """
    if not ONE_AT_A_TIME.acquire(blocking=False):
        raise CallError("profile: expected no other profile at the same time, got a second one")
    with ExitStack() as stack:
        stack.callback(ONE_AT_A_TIME.release)
        if alone:  # a run with a hook runs function by function
            _core.set_global_hook(0, KEY, lambda _: None)
            stack.callback(_core.unset_global_hook, 0, KEY)
        _core.take_timings()
        stack.callback(_core.take_timings)
        stack.callback(_core.time_runs, False)
        _core.time_runs(True)
        yield


@contextmanager
def profile(alone: bool = False) -> Iterator[Profile]:
    """Time a `with` block: functions forward and backward, solvers, data iterators, and Python code between them.

    All threads are timed. Print the result, show it in a notebook, or `save` it as a Chrome trace for
    https://ui.perfetto.dev or as a page with a flame graph. Operations and bytes are computed from shapes: see
    `Profile`. Fused functions share a row, such as `Affine + ReLU`. There is no timing outside of the block.

    Args:
        alone: Whether to run functions without fusion, with a row for each. This is slower than a normal run, and keeps
            the values between the functions.

    Yields:
        The profile. It is complete when the block ends.

    Raises:
        TypeError: If another profile is active.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable((8, 3), need_grad=True)
        >>> y = F.sum(F.relu(F.affine(x, nn.Variable((3, 4)))))
        >>> with nn.profile() as p:
        ...     y.forward()
        ...     y.backward()
        >>> [row.name for row in sorted(p.rows(), key=lambda r: r.name) if row.phase == "forward"]
        ['Affine', 'ReLU', 'Sum']
        >>> next(row.flop for row in p.rows() if row.name == "Affine" and row.phase == "forward")
        192
    """
    lanes: list[Lane] = []
    with ExitStack() as stack:
        stack.enter_context(timed(alone))
        recorder = Recorder(lanes)
        result = Profile(lanes, perf_counter_ns())
        stack.callback(result._end)
        watch(recorder, stack)
        stack.callback(recorder.take, "")
        yield result


def watch(recorder: Recorder, stack: ExitStack) -> None:
    """Wrap the calls to be timed until the block ends."""
    from .. import functions
    from ..data.data_iterator import DataIterator

    def around(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace a method by a wrapper until the block ends."""
        own = vars(owner)[name]
        setattr(owner, name, functools.wraps(own)(wrapper(own)))
        stack.callback(setattr, owner, name, own)

    def calls(phase: str, title: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A wrapper that records calls as spans of a phase."""

        def wrapper(own: Callable[..., Any]) -> Callable[..., Any]:
            """Decorates a method so that calls are recorded under `title`, or under its class and name."""

            def watched(*args: Any, **kwargs: Any) -> Any:
                """Calls the method and records it."""
                name = title or f"{type(args[0]).__name__}.{own.__name__}"
                return recorder.call(phase, name, own, args, kwargs)

            return watched

        return wrapper

    def builds(own: Callable[..., Any]) -> Callable[..., Any]:
        """A wrapper that records calls that build functions."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            """Calls the function and records it as building a graph."""
            return recorder.build(own.__name__, own, args, kwargs)

        return watched

    around(Variable, "forward", calls("run", "forward"))
    around(Variable, "backward", calls("run", "backward"))
    for owner in (sys.modules[PACKAGE], _core):
        around(owner, "forward_all", calls("run", "forward_all"))
    for name in ("backward_of_loss", "differentiate"):
        around(_core, name, calls("run", "autodiff"))
    for name in UPDATES:
        around(_core.Solver, name, calls("update", ""))
    around(DataIterator, "next", calls("data", ""))
    for name in OPERATORS:
        around(Variable, name, builds)
    for name, own in list(vars(_core.functions).items()):
        if callable(own) and not name.startswith("_"):
            for owner in (functions, _core.functions):
                if vars(owner).get(name) is own:
                    around(owner, name, builds)
