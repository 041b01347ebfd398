"""What this library is, and on what it runs."""

from __future__ import annotations

import platform

from . import _core

__all__ = ["array_classes", "available_contexts", "prefer_cached_array", "reset_array_preference", "show_config"]

available_contexts: list[str] = ["cpu"]
"""Names of what functions can run on."""


def show_config() -> None:
    """Print the version, the processor's instructions in use, the number of threads and what Python runs it."""
    import numpy as np

    facts = {
        "kinnor": _core.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        **{name: str(value) for name, value in _core.configuration().items()},
    }
    width = max(map(len, facts))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in facts.items()))


_PREFERRED = ["CpuCachedArray", "CpuArray", "CpuDlpackArray"]
_order = list(_PREFERRED)


def array_classes() -> list[str]:
    """Names of the classes of arrays, the preferred one first.

    Returns:
        The names.
    """
    return list(_order)


def prefer_cached_array(prefer: bool) -> None:
    """Kept for NNabla's programs: orders `array_classes`. Freed memory is always kept for reuse (`clear_memory_cache`).

    Args:
        prefer: Whether classes that keep memory for reuse come first.
    """
    _order.sort(key=lambda name: ("Cached" in name) != prefer)


def reset_array_preference() -> None:
    """Kept for NNabla's programs: `array_classes` in its first order again."""
    _order[:] = _PREFERRED
