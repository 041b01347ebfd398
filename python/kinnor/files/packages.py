"""Import of optional packages, with an error that says how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["needed"]


def needed(op: str, package: str, purpose: str, extra: str) -> Any:
    """Imports an optional package.

    Args:
        op: Name of the calling operation, for errors.
        package: Name of the package.
        purpose: Purpose of the package, for errors.
        extra: The extra of Kinnor that installs it.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{op}: expected the package {package} to be installed, for {purpose}: pip install 'kinnor[{extra}]'"
        ) from error
