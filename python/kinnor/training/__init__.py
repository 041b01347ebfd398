"""Training loops in parts: what is done in each iteration, in each evaluation, and round them."""

from .evaluator import Evaluator
from .trainer import Trainer
from .updater import Updater

__all__ = ["Evaluator", "Trainer", "Updater"]
