"""NNabla's extensions by name. Kinnor has one, `cpu`; other names raise ModuleNotFoundError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import cpu

if TYPE_CHECKING:
    from types import ModuleType

    from ..context import Context

__all__ = ["get_extension_context", "import_extension_module", "list_extensions"]

_EXTENSIONS = {"cpu": cpu}


def list_extensions() -> list[str]:
    """Names of the available extensions.

    Returns:
        The names.
    """
    return list(_EXTENSIONS)


def import_extension_module(ext_name: str) -> ModuleType:
    """The module of an extension.

    Args:
        ext_name: Name of the extension.

    Returns:
        The module, with `context`, `synchronize`, `clear_memory_cache` and others.

    Raises:
        ModuleNotFoundError: If the extension does not exist.
    """
    if ext_name not in _EXTENSIONS:
        known = ", ".join(_EXTENSIONS)
        raise ModuleNotFoundError(f"import_extension_module: expected one of {known}, got {ext_name!r}")
    return _EXTENSIONS[ext_name]


def get_extension_context(ext_name: str, **kw: Any) -> Context:
    """A context of an extension: `get_extension_context("cpu", type_config="double")`.

    Args:
        ext_name: Name of the extension.
        **kw: Arguments of the extension's `context`, such as `type_config` and `device_id`.

    Returns:
        The context.

    Raises:
        ModuleNotFoundError: If the extension does not exist.
        ValueError: If the extension does not know the type.
    """
    context: Context = import_extension_module(ext_name).context(**kw)
    return context
