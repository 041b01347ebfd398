"""`kinnor version` and `kinnor info`: print facts about this installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from ..system import show_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add a command without arguments.

    Args:
        name: `version` or `info`.
        parser: The parser of the command.
    """
    if name == "version":
        return lambda args: print(f"Kinnor {_core.__version__}")
    return lambda args: show_config()
