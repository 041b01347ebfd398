"""Contexts: the number type in which newly built functions compute, under NNabla's names of backends.

There is a default for the process, and scopes for each task. This module sends each change to the engine.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import _core
from ._check import explained, items
from ._core import CallError, GraphError, RangeError
from .modes import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

__all__ = ["Context", "autocast", "context_scope", "get_current_context", "set_default_context"]

COMPUTE_TYPES = ("float", "half", "double", "bfloat16")
"""Number types to compute in. They are the last part of a backend's name, as in `cpu:half`."""

DTYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
"""NumPy's names of these types, which are accepted as well."""


class Context:
    """The device and the precision of functions.

    Args:
        backend: Names `<engine>:<type>`, the best first; the first that exists here is taken. The engine is `cpu`,
            the type `float` (the default), `half`, `double` or `bfloat16`; NumPy's names `float32`, `float16` and
            `float64` stand for the first three. Half and bfloat16 are types of storage:
            arithmetic on them is done in float32.
        array_class: Name of a class of arrays; kept for NNabla's programs and without effect.
        device_id: Name of a device; kept for NNabla's programs and without effect.

    Raises:
        TypeError: If `backend` is not a list of names.
    """

    __slots__ = ("__weakref__", "_backend", "array_class", "device_id")

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """A context without backends, for derived classes that do not call `__init__`. Any use of it raises."""
        made = super().__new__(cls)
        made._backend, made.array_class, made.device_id = [], "", "0"
        return made

    def __init__(self, backend: Sequence[str] | None = None, array_class: str = "", device_id: str | int = "0") -> None:
        self._backend = _names(["cpu:float"] if backend is None else backend)
        self.array_class = array_class
        self.device_id = str(device_id)

    @property
    def backend(self) -> list[str]:
        """Names of backends, in order of preference."""
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
        """The number type of the first backend that exists: `float`, `half`, `double` or `bfloat16`.

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
        """Copies and unpickles from the arguments of the constructor."""
        return Context, (self._backend, self.array_class, self.device_id)


def _names(backend: Any) -> list[str]:
    """A new list of the names. A single string counts as a list of one."""
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
"""The active scopes of a task, innermost last: the engine's token of the scope, and its context."""


def get_current_context() -> Context:
    """The context of newly built functions: from the innermost scope of this thread, or the default.

    Returns:
        The context itself, not a copy.
    """
    scopes = _scopes.get()
    return scopes[-1][1] if scopes else _default


def set_default_context(ctx: Context) -> None:
    """Set the context for all threads outside of a `context_scope`.

    Args:
        ctx: The new default.

    Raises:
        TypeError: If it is not a context.
        RuntimeError: If none of its backends exists, or if called inside a `context_scope`.
    """
    global _default
    _check("set_default_context", ctx)
    if _scopes.get():
        raise GraphError("set_default_context: expected a call outside of any context_scope, got one inside")
    _core.set_context_mode(number_of(ctx))
    _default = ctx


class context_scope(Scope):
    """Use a context for all functions that the current task builds: a context manager and a decorator.

    Entering returns the context. A scope may be entered repeatedly.

    Args:
        ctx: The context.

    Raises:
        TypeError: If it is not a context.
        RuntimeError: If none of its backends exists.
    """

    def __init__(self, ctx: Context) -> None:
        _check("context_scope", ctx)
        super().__init__("context", None)
        self.context = ctx

    def __enter__(self) -> Context:
        self.value = number_of(self.context)  # Backends of a context may change between blocks.
        super().__enter__()
        _scopes.set((*_scopes.get(), (self.entered[-1], self.context)))
        return self.context

    def leave(self) -> int | None:
        """Leaves the innermost block of this task, and forgets its context."""
        left = super().leave()
        if left is not None:
            _scopes.set(tuple(scope for scope in _scopes.get() if scope[0] != left))
        return left


class autocast(context_scope):
    """Build functions in mixed precision: a context manager, which returns the context on entry, and a decorator.

    Values of functions are stored in 16 bits. In `bfloat16`, products, convolutions of one pixel and fully connected
    layers multiply numbers in bfloat16. Sums are formed in float32, as is all other arithmetic. Parameters and their
    gradients, statistics and the state of solvers stay in float32.

    Args:
        dtype: `bfloat16`, or `half` (`float16`), whose gradients need a scale.
        enabled: If false, functions use the current context.

    Raises:
        ValueError: If the type is another one.

    Example:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable((2, 3))
        >>> with nn.autocast():
        ...     y = F.exp(x)
        >>> y.forward()
        >>> y.data.dtype
        dtype(bfloat16)
    """

    @explained(
        "autocast",
        {
            "cache_enabled": "leave it out",
            "device_type": "leave it out: there is one device, the CPU",
        },
    )
    def __init__(self, dtype: str = "bfloat16", enabled: bool = True) -> None:
        kind = getattr(dtype, "__name__", dtype)  # A type of NumPy has a name.
        kind = DTYPE_NAMES.get(kind, kind)
        if kind not in ("half", "bfloat16"):
            hint = "; leave out the device, which is the CPU" if kind in ("cpu", "cuda", "mps") else ""
            raise RangeError(f"autocast: expected `dtype` to be bfloat16 or half, got {dtype!r}{hint}")
        current = get_current_context()
        backend = [f"cpu:{kind}", *current.backend] if enabled else current.backend
        super().__init__(Context(backend, current.array_class, current.device_id))


class numbered_context:
    """Uses a context in a block that builds functions, by its number.

    It is faster than `context_scope`, and `get_current_context` does not see it.

    Args:
        number: The engine's number for the context.
    """

    __slots__ = ("_number", "_outer")

    def __init__(self, number: int) -> None:
        self._number = number
        self._outer: int | None = None

    def __enter__(self) -> None:
        self._outer = _core.scope_context(self._number)

    def __exit__(self, *error: object) -> None:
        _core.scope_context(self._outer)


def _check(op: str, context: object) -> None:
    """Raises CallError unless the argument is a Context."""
    if not isinstance(context, Context):
        raise CallError(f"{op}: expected a Context, got {context!r}")


def number_of(context: Context) -> int:
    """The engine's number for a context."""
    return _core.intern_context(context.backend, context.array_class, context.device_id, context.compute_type)


def _announce_if_current(context: Context) -> None:
    """Sends a changed context to the engine if it is the current one or the default."""
    scopes = _scopes.get()
    if scopes and context is scopes[-1][1]:
        _core.put_mode("context", number_of(context))
    if context is _default:
        _core.set_context_mode(number_of(context))
