"""Contexts: the number type that functions built from now on compute in.

Knows the names that NNabla gives to backends, the default of the process and the scopes of a task. The engine
is told the outcome whenever it changes, and asks for nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import _core
from ._check import items
from ._core import CallError, GraphError, RangeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

__all__ = ["Context", "context_scope", "get_current_context", "set_default_context"]

COMPUTE_TYPES = ("float", "half", "double", "bfloat16")
"""What an engine can compute in. The last part of a backend's name, as in `cpu:half`."""

DTYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
"""NumPy's names of these types, which are accepted as well."""


class Context:
    """Where and in what precision functions compute.

    Args:
        backend: Names `<engine>:<type>`, the best first; the first that exists here is taken. The engine is `cpu`,
            the type `float` (the default), `half`, `double` or `bfloat16`; NumPy's names `float32`, `float16` and
            `float64` stand for the first three. Half and bfloat16 are types of storage:
            arithmetic on them is done in float32.
        array_class: Name of a class of arrays; kept for NNabla's programs and without effect.
        device_id: Name of a device; kept for NNabla's programs and without effect.

    Raises:
        TypeError: If `backend` is no list of names.
    """

    __slots__ = ("__weakref__", "_backend", "array_class", "device_id")

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """A context of no backend, which fails where it is used, for derived classes that do not call `__init__`."""
        made = super().__new__(cls)
        made._backend, made.array_class, made.device_id = [], "", "0"
        return made

    def __init__(self, backend: Sequence[str] | None = None, array_class: str = "", device_id: str | int = "0") -> None:
        self._backend = _names(["cpu:float"] if backend is None else backend)
        self.array_class = array_class
        self.device_id = str(device_id)

    @property
    def backend(self) -> list[str]:
        """Names of backends, the best first."""
        return self._backend

    @backend.setter
    def backend(self, backend: Sequence[str]) -> None:
        previous, self._backend = self._backend, _names(backend)
        try:
            _announce_if_current(self)
        except Exception:
            self._backend = previous
            raise

    @property
    def compute_type(self) -> str:
        """The number type of the first backend that exists here: `float`, `half`, `double` or `bfloat16`.

        Raises:
            RuntimeError: If there is none.
        """
        for name in self._backend:
            engine, _, kind = name.partition(":")
            kind = DTYPE_NAMES.get(kind, kind)
            if engine == "cpu" and kind in COMPUTE_TYPES:
                return kind
        known = ", ".join(f"cpu:{kind}" for kind in COMPUTE_TYPES)
        raise RangeError(f"Context: expected one of the backends {known}, got {self._backend}")

    def __getitem__(self, name: str) -> Any:
        if name not in ("backend", "array_class", "device_id"):
            raise KeyError(name)
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"Context(backend={self._backend}, array_class={self.array_class!r}, device_id={self.device_id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self._backend, self.array_class, self.device_id)


def _names(backend: Any) -> list[str]:
    """The names as a list of their own; a single name is taken for a list of one."""
    names = [backend] if isinstance(backend, str) else backend
    try:
        names = items("Context", "backend", names)
    except TypeError:
        names = None
    if not names or not all(isinstance(name, str) for name in names):
        raise CallError(f"Context: expected `backend` to be a list of names such as 'cpu:float', got {backend!r}")
    return names


_default = Context()


_scopes: ContextVar[tuple[tuple[int, Context], ...]] = ContextVar("kinnor.context_scopes", default=())
"""The scopes that a task is in, the innermost last: what the engine knows each by, and its context."""


def get_current_context() -> Context:
    """The context that functions built now get: that of the innermost scope of this thread, or the default.

    Returns:
        The context itself, not a copy.
    """
    scopes = _scopes.get()
    return scopes[-1][1] if scopes else _default


def set_default_context(ctx: Context) -> None:
    """Set the context of every thread that is in no `context_scope`.

    Args:
        ctx: The new default.

    Raises:
        TypeError: If it is no context.
        RuntimeError: If no backend of it exists here, or if called inside a `context_scope`.
    """
    global _default
    _check("set_default_context", ctx)
    if _scopes.get():
        raise GraphError("set_default_context: expected a call outside of any context_scope, got one inside")
    _core.set_context_mode(_number(ctx))
    _default = ctx


@contextmanager
def context_scope(ctx: Context) -> Iterator[Context]:
    """Use a context for the functions that this thread, and this task in it, builds in a `with` block.

    Args:
        ctx: The context.

    Returns:
        The context manager; it gives the context.

    Raises:
        TypeError: If it is no context.
        RuntimeError: If no backend of it exists here.
    """
    _check("context_scope", ctx)
    entered = _core.enter_mode("context", _number(ctx))
    _scopes.set((*_scopes.get(), (entered, ctx)))
    try:
        yield ctx
    finally:
        _scopes.set(tuple(scope for scope in _scopes.get() if scope[0] != entered))
        _core.leave_mode([entered])


def _check(op: str, context: object) -> None:
    if not isinstance(context, Context):
        raise CallError(f"{op}: expected a Context, got {context!r}")


def _number(context: Context) -> int:
    """The number that the engine gives to a context."""
    return _core.intern_context(context.backend, context.array_class, context.device_id, context.compute_type)


def _announce_if_current(context: Context) -> None:
    """Tell the engine of a context that was changed while it is in use."""
    scopes = _scopes.get()
    if scopes and context is scopes[-1][1]:
        _core.put_mode("context", _number(context))
    if context is _default:
        _core.set_context_mode(_number(context))
