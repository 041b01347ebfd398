"""Training loops: `fit` for most programs, and the parts that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._suggest import absent
from .callbacks import Callback, EarlyStopping, History, Run
from .fitting import fit
from .loop import Evaluator, Trainer, Updater

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["Callback", "EarlyStopping", "Evaluator", "History", "Run", "Trainer", "Updater", "fit"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
