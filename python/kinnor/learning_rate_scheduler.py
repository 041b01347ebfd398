"""Learning-rate schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _check
from ._core import CallError, RangeError

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
    """The base class of learning-rate schedules."""

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of one iteration.

        Args:
            iter: The iteration, from 0.

        Returns:
            The learning rate.
        """
        raise NotImplementedError(f"{type(self).__name__}.get_learning_rate: expected the class to define it")


class PolynomialScheduler(BaseLearningRateScheduler):
    """Polynomial decay to zero: `init_lr (1 - iter / max_iter)^power`.

    Args:
        init_lr: Initial learning rate.
        max_iter: The iteration from which on the learning rate is zero.
        power: The power, zero or more.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `max_iter` is below one, or `power` below zero.
    """

    def __init__(self, init_lr: float, max_iter: int, power: float) -> None:
        self.init_lr: float = _check.number("PolynomialScheduler", "init_lr", init_lr)
        self.max_iter: int = _at_least("PolynomialScheduler", "max_iter", max_iter, 1)
        self.power: float = _at_least("PolynomialScheduler", "power", power, 0)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate: float = self.init_lr * max(0.0, 1.0 - iter / self.max_iter) ** self.power
        return rate


class CosineScheduler(BaseLearningRateScheduler):
    """Cosine decay to zero: `init_lr (cos(pi iter / max_iter) + 1) / 2`.

    Args:
        init_lr: Initial learning rate.
        max_iter: The iteration from which on the learning rate is zero.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `max_iter` is below one.
    """

    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr: float = _check.number("CosineScheduler", "init_lr", init_lr)
        self.max_iter: int = _at_least("CosineScheduler", "max_iter", max_iter, 1)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        return self.init_lr * ((math.cos(min(iter / self.max_iter, 1.0) * math.pi) + 1.0) * 0.5)


class ExponentialScheduler(BaseLearningRateScheduler):
    """Exponential decay: `init_lr gamma^floor(iter / iter_interval)`.

    Args:
        init_lr: Initial learning rate.
        gamma: Factor of each decay.
        iter_interval: Number of iterations between decays.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If `iter_interval` is below one.
    """

    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr: float = _check.number("ExponentialScheduler", "init_lr", init_lr)
        self.gamma: float = _check.number("ExponentialScheduler", "gamma", gamma)
        self.iter_interval: int = _at_least("ExponentialScheduler", "iter_interval", iter_interval, 1)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate: float = self.init_lr * self.gamma ** (iter // self.iter_interval)
        return rate


class StepScheduler(BaseLearningRateScheduler):
    """Step decay: the learning rate is multiplied by `gamma` at each iteration of `iter_steps`.

    Args:
        init_lr: Initial learning rate.
        gamma: Factor of each decay.
        iter_steps: The iterations of the decays.

    Raises:
        TypeError: If an argument is not a number, or if `iter_steps` is not a list of numbers.

    Examples:
        >>> schedule = StepScheduler(0.1, 0.5, [100, 200])
        >>> [schedule.get_learning_rate(i) for i in (99, 100, 200)]
        [0.1, 0.05, 0.025]
    """

    def __init__(self, init_lr: float, gamma: float, iter_steps: Iterable[int]) -> None:
        self.init_lr: float = _check.number("StepScheduler", "init_lr", init_lr)
        self.gamma: float = _check.number("StepScheduler", "gamma", gamma)
        steps = _check.items("StepScheduler", "iter_steps", iter_steps)
        self.iter_steps = [_check.number("StepScheduler", "iter_steps", step) for step in steps]

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate = self.init_lr
        for step in self.iter_steps:
            if iter >= step:
                rate *= self.gamma
        return rate


class LinearWarmupScheduler(BaseLearningRateScheduler):
    """Linear warm-up: another schedule's learning rate times `(iter + 1) / warmup_iter` until `warmup_iter`.

    Args:
        scheduler: The other schedule. Its iterations count from 0, too.
        warmup_iter: Number of iterations of the warm-up.

    Raises:
        TypeError: If `warmup_iter` is not a number, or if `scheduler` is not a schedule.
    """

    def __init__(self, scheduler: BaseLearningRateScheduler, warmup_iter: int) -> None:
        if not callable(getattr(scheduler, "get_learning_rate", None)):
            raise CallError(f"LinearWarmupScheduler: expected `scheduler` to be a schedule, got {scheduler!r}")
        self.scheduler = scheduler
        self.warmup_iter: int = _check.number("LinearWarmupScheduler", "warmup_iter", warmup_iter)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate = self.scheduler.get_learning_rate(iter)
        return rate * (iter + 1) / self.warmup_iter if iter < self.warmup_iter else rate


def _at_least(op: str, name: str, value: Any, least: int) -> Any:
    """Return a number. Raises an error if it is not a number, or below `least`."""
    if _check.number(op, name, value) < least:
        raise RangeError(f"{op}: expected `{name}` to be at least {least}, got {value}")
    return value
