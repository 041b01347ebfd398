"""Errors that Python code raises beside the engine's."""

from __future__ import annotations

from ._core import Error

__all__ = ["ParameterError"]


class ParameterError(Error, KeyError, ValueError):
    """A parameter, or a file of parameters, that is not what was asked for."""

    # `KeyError` shows its message in quotes.
    __str__ = Exception.__str__
