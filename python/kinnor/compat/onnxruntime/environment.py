"""Functions of `onnxruntime` about the process: providers, versions, threads and logging."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import kinnor

__all__ = [
    "VERSION",
    "check_and_normalize_provider_args",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "log",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

VERSION = "1.32.0"
"""The version of ONNX Runtime whose Python interface this is."""


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Check the providers of a session, and warn if one is not available.

    Args:
        providers: Names, or pairs of a name and its settings.
        provider_options: The settings of each name, or None.
        available_provider_names: The providers that there are.

    Returns:
        The names, and the settings of each as strings.

    Raises:
        ValueError: If an argument is of another kind.
    """
    found: dict[str, dict[str, str]] = {}
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence):
        raise ValueError(f"providers: expected a sequence, got {type(providers).__name__}")
    pairs = [(held, {}) if isinstance(held, str) else held for held in providers]
    if provider_options is not None:
        if not isinstance(provider_options, Sequence) or len(provider_options) != len(providers):
            raise ValueError(f"provider_options: expected {len(providers)} dictionaries, got {provider_options!r}")
        if not all(isinstance(held, str) for held in providers):
            raise ValueError("providers: expected names where `provider_options` are given, got others")
        pairs = list(zip(providers, provider_options, strict=True))
    for pair in pairs:
        fits = isinstance(pair, tuple) and len(pair) == 2
        if not (fits and isinstance(pair[0], str) and isinstance(pair[1], dict)):
            raise ValueError(f"providers: expected names, or pairs of a name and a dictionary, got {pair!r}")
        name, settings = pair
        if name not in available_provider_names:
            there = ", ".join(available_provider_names)
            warnings.warn(f"provider {name!r} is not available, only: {there}", UserWarning, stacklevel=3)
        if name in found:
            warnings.warn(f"provider {name!r} is there twice", UserWarning, stacklevel=3)
        else:
            found[name] = {str(key): str(value) for key, value in settings.items()}
    return list(found), list(found.values())


def get_available_providers() -> list[str]:
    """Returns `["CPUExecutionProvider"]`."""
    return ["CPUExecutionProvider"]


get_all_providers = get_available_providers


def get_device() -> str:
    """Returns `CPU`."""
    return "CPU"


def get_version_string() -> str:
    """Returns the version of ONNX Runtime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """Returns the version of Kinnor."""
    return f"ORT Build Info: Kinnor {kinnor.__version__}"


def has_collective_ops() -> bool:
    """Returns False."""
    return False


def set_seed(seed: int) -> None:
    """Seed random operators.

    Args:
        seed: The seed.
    """
    kinnor.seed(seed)


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Set the number of threads of the process.

    Args:
        intra_op_num_threads: The number; 0 changes nothing.
        inter_op_num_threads: Ignored.
    """
    if intra_op_num_threads > 0:
        kinnor.set_num_threads(intra_op_num_threads)


def get_ep_devices() -> list[Any]:
    """Returns the devices of plugins: none."""
    return []


_logging: dict[str, Any] = {"callback": None, "severity": 2}
"""The function that gets messages, and the lowest level of those."""


def set_default_logger_severity(severity: int) -> None:
    """Set the lowest level of messages.

    Args:
        severity: From 0, all, to 4.
    """
    if severity not in range(5):
        raise RuntimeError(f"set_default_logger_severity: expected a level from 0 to 4, got {severity!r}")
    _logging["severity"] = severity


def set_default_logger_callback(callback: Any, severity: int = 2) -> None:
    """Set the function that gets messages.

    Args:
        callback: Function of level, category, name of the logger, place and text. None removes it.
        severity: The lowest level of messages, from 0 to 4.
    """
    if callback is not None and not callable(callback):
        raise RuntimeError(f"set_default_logger_callback: expected a function, got {type(callback).__name__}")
    set_default_logger_severity(severity)
    _logging["callback"] = callback


def log(text: str) -> None:
    """Passes a message to the function of the program, whose errors are ignored."""
    if _logging["callback"] is not None and _logging["severity"] == 0:
        try:
            _logging["callback"](0, "kinnor", "Default", __name__, text)
        except Exception as error:
            warnings.warn(f"the logging callback raised {error!r}", RuntimeWarning, stacklevel=3)


def print_debug_info() -> None:
    """Print versions."""
    print(get_build_info(), f"ONNX Runtime {VERSION}", sep="\n")


def _ignore(*_: Any, **__: Any) -> None:
    """Does nothing."""


create_and_register_allocator = _ignore
create_and_register_allocator_v2 = _ignore
disable_telemetry_events = _ignore
enable_telemetry_events = _ignore
preload_dlls = _ignore
set_default_logger_verbosity = _ignore
