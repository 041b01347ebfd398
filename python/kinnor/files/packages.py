"""Packages that not everybody has.

Knows how to import them when they are needed, and what to say where they are missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["needed"]


def needed(op: str, package: str, purpose: str, extra: str) -> Any:
    """A package that not everybody has.

    Args:
        op: What needs it, for errors.
        package: Its name.
        purpose: What for.
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
