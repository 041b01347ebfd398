"""`kinnor version` and `kinnor info`: print facts about this installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kinnor

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
        return lambda args: print(f"Kinnor {kinnor.__version__}")
    return lambda args: kinnor.show_config()
