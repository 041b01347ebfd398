"""NNabla's file format NNP, which is neither read nor written here."""

from __future__ import annotations

from typing import Any, NoReturn

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: files in NNabla's NNP format are not supported")

    return refuse
