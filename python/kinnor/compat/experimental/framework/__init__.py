"""Building blocks of training loops: update steps, evaluation, and the loop over epochs."""

from .evaluator import Evaluator
from .trainer import Trainer
from .updater import Updater

__all__ = ["Evaluator", "Trainer", "Updater"]
