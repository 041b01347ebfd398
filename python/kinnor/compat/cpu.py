"""The extension `cpu`: this machine's processor, as NNabla's programs know it (`nnabla_ext.cpu`)."""

from __future__ import annotations

from .. import _core, system
from .._core import RangeError
from ..context import COMPUTE_TYPES, DTYPE_NAMES, Context

__all__ = [
    "array_classes",
    "clear_memory_cache",
    "context",
    "device_synchronize",
    "get_device_count",
    "get_devices",
    "synchronize",
]


def context(type_config: str = "float", **options: object) -> Context:
    """A context that computes on the processor.

    Args:
        type_config: `float`, `double`, or to store numbers in 16 bits `half` or `bfloat16`. NumPy's names `float32`,
            `float64` and `float16` stand for the first three.
        **options: Options of other extensions, such as `device_id`; without effect.

    Returns:
        The context.

    Raises:
        ValueError: If there is no such type.
    """
    type_config = DTYPE_NAMES.get(type_config, type_config)
    if type_config not in COMPUTE_TYPES:
        known = ", ".join(COMPUTE_TYPES)
        raise RangeError(f"context: expected `type_config` to be one of {known}, got {type_config!r}")
    backend = ["cpu:float"] if type_config == "float" else [f"cpu:{type_config}", "cpu:float"]
    return Context(backend, array_classes()[0], "")


def array_classes() -> list[str]:
    """Names of the classes of arrays, the preferred one first.

    Returns:
        The names.
    """
    return system.array_classes()


def clear_memory_cache() -> None:
    """Give memory that is kept for reuse back to the system."""
    _core.clear_memory_cache()


def synchronize(**options: object) -> None:
    """Wait for the device: returns at once, because functions are complete when they return.

    Args:
        **options: Options of other extensions; without effect.
    """


def device_synchronize(device: str) -> None:
    """Wait for one device: returns at once, because functions are complete when they return.

    Args:
        device: Name of the device.
    """


def get_device_count() -> int:
    """Number of devices.

    Returns:
        1, the processor.
    """
    return 1


def get_devices() -> list[str]:
    """Names of the devices.

    Returns:
        The names.
    """
    return ["0"]
