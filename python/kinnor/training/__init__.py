"""Training loops: `fit` for most programs, and the parts that it is made of."""

from .callbacks import Callback, EarlyStopping, Run
from .evaluator import Evaluator
from .fitting import fit
from .history import History
from .trainer import Trainer
from .updater import Updater

__all__ = ["Callback", "EarlyStopping", "Evaluator", "History", "Run", "Trainer", "Updater", "fit"]
