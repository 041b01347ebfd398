"""Handles on functions of a graph, and the base class of a user's own."""

from ._core import Function, FunctionInfo, PythonFunction

__all__ = ["Function", "FunctionInfo", "PythonFunction"]
