"""`kinnor version` and `kinnor info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from ..system import show_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command: none.

    Args:
        name: `version` or `info`.
        parser: What gets them.
    """
    if name == "version":
        return lambda args: print(f"Kinnor {_core.__version__}")
    return lambda args: show_config()
