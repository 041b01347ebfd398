"""The deprecated name of `get_extension_context`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ext_utils import get_extension_context

if TYPE_CHECKING:
    from ...context import Context

__all__ = ["extension_context"]


def extension_context(extension_name: str = "cpu", **kw: Any) -> Context:
    """A context of an extension: the old name of `kinnor.ext_utils.get_extension_context`.

    Args:
        extension_name: Name of the extension.
        **kw: Arguments of the extension's `context`, such as `type_config` and `device_id`.

    Raises:
        ModuleNotFoundError: If the extension does not exist.
        ValueError: If the extension does not know the type.

    Examples:
        >>> old, new = extension_context("cpu", type_config="half"), get_extension_context("cpu", type_config="half")
        >>> str(old) == str(new)
        True
    """
    return get_extension_context(extension_name, **kw)
