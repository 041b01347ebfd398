"""Version and configuration of the library, and the order of array classes."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["array_classes", "available_contexts", "prefer_cached_array", "reset_array_preference", "show_config"]

available_contexts: list[str] = ["cpu"]
"""Names of the devices that functions can run on."""


def show_config() -> None:
    """Print the versions of Kinnor, Python and NumPy, the vector instructions in use and the number of threads.

    The environment variable `KINNOR_ISA` limits the instructions that kernels use, to `portable`, `avx2` or `avx512`.
    The last one turns AMX off. The lines `bfloat16` and `int8` name the instructions of products in bfloat16 and of
    8-bit levels. They say so if AMX is off because its first product was wrong.
    """
    import numpy as np

    facts = {
        "kinnor": _core.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        **{name: str(value) for name, value in _core.configuration().items()},
        "bfloat16": _core.bfloat16_instructions(),
        "int8": _core.integer_instructions(),
    }
    width = max(map(len, facts))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in facts.items()))


def slowness(machine: str, facts: Mapping[str, Any]) -> str | None:
    """The warning for a processor without AVX2, on which kernels are slow.

    Args:
        machine: The kind of processor, from `platform.machine`.
        facts: The core's configuration, with the vector instructions under `processor`.

    Returns:
        The warning, or None if the processor has AVX2 or is of another kind.
    """
    if machine.lower() not in {"x86_64", "amd64"} or "avx2" in facts["processor"].split():
        return None
    return "kinnor: this processor has no AVX2: matrix products take some five times as long as on one that has"


def say_slowness() -> None:
    """Prints the warning of `slowness` to standard error. The package calls it once, on import."""
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
    """Order `array_classes`, for NNabla's programs. It changes no allocation: freed memory is always cached.

    Args:
        prefer: Whether the classes with a memory cache come first.
    """
    _order.sort(key=lambda name: ("Cached" in name) != prefer)


def reset_array_preference() -> None:
    """Restore the first order of `array_classes`, for NNabla's programs."""
    _order[:] = _PREFERRED
