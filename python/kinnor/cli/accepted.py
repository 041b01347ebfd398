"""Arguments of NNabla's commands that Kinnor does not have: ignored with a warning, or refused."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .._core import UnsupportedError

__all__ = ["refused", "without_effect"]


class _WithoutEffect(argparse.Action):
    """Ignores an argument and prints the reason on standard error."""

    def __init__(self, *args: Any, why: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.why = why

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        print(f"{parser.prog}: {option} is without effect: {self.why}", file=sys.stderr)


class _Refused(_WithoutEffect):
    """Refuses an argument: raises `UnsupportedError` with the reason."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        raise UnsupportedError(f"expected no {option}: {self.why}")


def without_effect(parser: argparse.ArgumentParser, why: str, *flags: str, takes: str | None = None) -> None:
    """Add an argument that is ignored: a command that gets it prints the reason.

    Args:
        parser: The parser of the command.
        why: Reason why the argument has no effect.
        flags: Its names.
        takes: Name of its value in the help text; None if it takes no value.
    """
    _add(parser, _WithoutEffect, f"without effect: {why}", why, flags, takes)


def refused(parser: argparse.ArgumentParser, why: str, *flags: str, takes: str | None = None) -> None:
    """Add an argument that a command refuses with `UnsupportedError`.

    Args:
        parser: The parser of the command.
        why: Reason why the argument is not supported.
        flags: Its names.
        takes: Name of its value in the help text; None if it takes no value.
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
    """Add an argument that triggers `action`."""
    parser.add_argument(*flags, action=action, why=why, nargs=0 if takes is None else None, metavar=takes, help=text)
