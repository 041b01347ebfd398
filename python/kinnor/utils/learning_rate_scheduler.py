"""Learning rates that change with the iteration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BaseLearningRateScheduler",
    "CosineScheduler",
    "ExponentialScheduler",
    "LinearWarmupScheduler",
    "PolynomialScheduler",
    "StepScheduler",
]


class BaseLearningRateScheduler:
    """What every schedule can do; a schedule of your own derives from it."""

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of one iteration.

        Args:
            iter: The iteration, from 0.

        Returns:
            The learning rate.
        """
        raise NotImplementedError(f"{type(self).__name__}.get_learning_rate: expected the class to define it")


class PolynomialScheduler(BaseLearningRateScheduler):
    """Falls to zero as a power: `init_lr (1 - iter / max_iter)^power`.

    Args:
        init_lr: The learning rate at the start.
        max_iter: The iteration at which it is zero; the formula means nothing after it.
        power: The power.
    """

    def __init__(self, init_lr: float, max_iter: int, power: float) -> None:
        self.init_lr = init_lr
        self.max_iter = max_iter
        self.power = power

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate: float = self.init_lr * (1.0 - iter / self.max_iter) ** self.power
        return rate


class CosineScheduler(BaseLearningRateScheduler):
    """Falls to zero along half a cosine: `init_lr (cos(pi iter / max_iter) + 1) / 2`.

    Args:
        init_lr: The learning rate at the start.
        max_iter: The iteration at which it is zero.
    """

    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr = init_lr
        self.max_iter = max_iter

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        return self.init_lr * ((math.cos(iter / self.max_iter * math.pi) + 1.0) * 0.5)


class ExponentialScheduler(BaseLearningRateScheduler):
    """Is multiplied again and again: `init_lr gamma^floor(iter / iter_interval)`.

    Args:
        init_lr: The learning rate at the start.
        gamma: What it is multiplied by.
        iter_interval: After how many iterations.
    """

    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr = init_lr
        self.gamma = gamma
        self.iter_interval = iter_interval

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate: float = self.init_lr * self.gamma ** (iter // self.iter_interval)
        return rate


class StepScheduler(BaseLearningRateScheduler):
    """Is multiplied at given iterations: by `gamma` for each of `iter_steps` that is reached.

    Args:
        init_lr: The learning rate at the start.
        gamma: What it is multiplied by.
        iter_steps: The iterations at which this happens.

    Examples:
        >>> schedule = StepScheduler(0.1, 0.5, [100, 200])
        >>> [schedule.get_learning_rate(i) for i in (99, 100, 200)]
        [0.1, 0.05, 0.025]
    """

    def __init__(self, init_lr: float, gamma: float, iter_steps: Iterable[int]) -> None:
        self.init_lr = init_lr
        self.gamma = gamma
        self.iter_steps = list(iter_steps)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate = self.init_lr
        for step in self.iter_steps:
            if iter >= step:
                rate *= self.gamma
        return rate


class LinearWarmupScheduler(BaseLearningRateScheduler):
    """Grows into another schedule: that one's rate times `(iter + 1) / warmup_iter` until `warmup_iter`.

    Args:
        scheduler: The schedule; its own count runs from iteration 0 as well.
        warmup_iter: For how many iterations the rate grows.
    """

    def __init__(self, scheduler: BaseLearningRateScheduler, warmup_iter: int) -> None:
        self.scheduler = scheduler
        self.warmup_iter = warmup_iter

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate = self.scheduler.get_learning_rate(iter)
        return rate * (iter + 1) / self.warmup_iter if iter < self.warmup_iter else rate
