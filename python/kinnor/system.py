"""What this library is, and on what it runs."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["array_classes", "available_contexts", "prefer_cached_array", "reset_array_preference", "show_config"]

available_contexts: list[str] = ["cpu"]
"""Names of what functions can run on."""


def show_config() -> None:
    """Print the version, the processor's instructions in use, the number of threads and what Python runs it.

    With the environment variable `KINNOR_ISA=portable`, or `avx2`, kernels use no more than these.
    """
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


def slowness(machine: str, facts: Mapping[str, Any]) -> str | None:
    """What to say to a machine whose processor is too old for the quick kernels.

    Args:
        machine: The kind of processor, as `platform.machine` has it.
        facts: What the core says of it: the vector instructions under `processor`.

    Returns:
        A sentence, or None where nothing is to be said.
    """
    if machine.lower() not in {"x86_64", "amd64"} or "avx2" in facts["processor"].split():
        return None
    return "kinnor: this processor has no AVX2: matrix products take some five times as long as on one that has"


def say_slowness() -> None:
    """Say it on standard error, once: when the package is imported."""
    if text := slowness(platform.machine(), _core.configuration()):
        print(text, file=sys.stderr)


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
