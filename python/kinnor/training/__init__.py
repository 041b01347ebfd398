"""Training loops: `fit` for most programs, and the parts that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._suggest import absence
from .callbacks import Callback, EarlyStopping, Run
from .fitting import fit
from .history import History
from .loop import Evaluator, Trainer, Updater

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["Callback", "EarlyStopping", "Evaluator", "History", "Run", "Trainer", "Updater", "fit"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        """Raises AttributeError with a hint at a similar name."""
        raise AttributeError(absence(f"{__name__}.{name}", __all__))
