"""The context of an extension, by its old name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ext_utils import get_extension_context

if TYPE_CHECKING:
    from ...context import Context

__all__ = ["extension_context"]


def extension_context(extension_name: str = "cpu", **kw: Any) -> Context:
    """A context of an extension: what `kinnor.ext_utils.get_extension_context` gives.

    Args:
        extension_name: Name of the extension.
        **kw: What the extension's `context` takes, such as `type_config` and `device_id`.

    Raises:
        ModuleNotFoundError: If there is no such extension.
        ValueError: If the extension has no such type.

    Examples:
        >>> old, new = extension_context("cpu", type_config="half"), get_extension_context("cpu", type_config="half")
        >>> str(old) == str(new)
        True
    """
    return get_extension_context(extension_name, **kw)
