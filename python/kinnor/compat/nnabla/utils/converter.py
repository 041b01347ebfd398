"""Facts about functions in the form of NNabla's converter. Files are not converted."""

from __future__ import annotations

from typing import Any

from kinnor import _core

__all__ = ["get_category_info", "get_function_info"]

Facts = dict[str, dict[str, Any]]


def get_function_info() -> Facts:
    """What is declared of every function.

    Returns:
        By the name of its type: the name of the Python function, inputs and arguments by name, documentation.
    """
    facts: Facts = {}
    for name, type_name, inputs, arguments, doc in _core.declarations():
        facts[type_name] = {
            "snake_name": name,
            "doc": doc,
            "inputs": {
                i: {key: True for key, word in (("variadic", "list"), ("optional", "optional")) if word == kind}
                for i, kind in inputs
            },
            "arguments": {
                info: {"type": kind} if default is None else {"type": kind, "default": default}
                for _, info, kind, default in arguments
            },
        }
    return facts


def get_category_info() -> dict[str, Facts]:
    """What is declared of every function, by category; there is one category.

    Returns:
        The facts of `get_function_info` by the name of the category.
    """
    return {"Function": get_function_info()}
