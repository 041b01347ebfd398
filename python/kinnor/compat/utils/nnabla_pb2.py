"""Messages of NNabla's files, under NNabla's names: `NNablaProtoBuf`, `Network`, `Function` and the others.

They are classes of the package `protobuf`. `python/kinnor/files/nnabla.proto` declares them.
"""

from __future__ import annotations

from typing import Any

from ...files import schema

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    """Returns the message class of a name."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(schema.messages(), name)
    except AttributeError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error


def __dir__() -> list[str]:
    """Lists the message classes."""
    return sorted(vars(schema.messages()))
