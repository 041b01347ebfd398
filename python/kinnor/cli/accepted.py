"""Arguments of NNabla's commands that have no meaning here: taken with a line that says so, or refused."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .._core import UnsupportedError

__all__ = ["refused", "without_effect"]


class _WithoutEffect(argparse.Action):
    """Says on standard error why it has no effect."""

    def __init__(self, *args: Any, why: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.why = why

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        print(f"{parser.prog}: {option} is without effect: {self.why}", file=sys.stderr)


class _Refused(_WithoutEffect):
    """Ends the command."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        raise UnsupportedError(f"expected no {option}: {self.why}")


def without_effect(parser: argparse.ArgumentParser, why: str, *flags: str, takes: str | None = None) -> None:
    """Add an argument that changes nothing, and says so where it is given.

    Args:
        parser: What gets it.
        why: Why it changes nothing.
        flags: Its names.
        takes: What its value is called; it takes none if this is None.
    """
    _add(parser, _WithoutEffect, f"without effect: {why}", why, flags, takes)


def refused(parser: argparse.ArgumentParser, why: str, *flags: str, takes: str | None = None) -> None:
    """Add an argument that ends the command with `UnsupportedError`.

    Args:
        parser: What gets it.
        why: Why there is no such thing.
        flags: Its names.
        takes: What its value is called; it takes none if this is None.
    """
    _add(parser, _Refused, f"refused: {why}", why, flags, takes)


def _add(
    parser: argparse.ArgumentParser,
    action: type[_WithoutEffect],
    text: str,
    why: str,
    flags: tuple[str, ...],
    takes: str | None,
) -> None:
    parser.add_argument(*flags, action=action, why=why, nargs=0 if takes is None else None, metavar=takes, help=text)
