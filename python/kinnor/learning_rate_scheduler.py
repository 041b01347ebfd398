"""Learning-rate schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _check
from ._check import explained
from ._core import CallError, RangeError
from ._suggest import absent, lacks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

__all__ = [
    "BaseLearningRateScheduler",
    "CosineScheduler",
    "ExponentialScheduler",
    "LinearWarmupScheduler",
    "PlateauScheduler",
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            lacks(self, name, "SCHEDULE")


_ELSEWHERE = {
    "T_max": "max_iter",
    "decay_rate": "gamma",
    "decay_steps": "max_iter",
    "eta_min": "schedules end at 0; max(schedule.get_learning_rate(i), least) is a least rate",
    "initial_learning_rate": "init_lr",
    "last_epoch": "get_learning_rate takes the number of the update",
    "learning_rate": "init_lr",
    "lr": "init_lr",
    "max_lr": "init_lr",
    "milestones": "iter_steps",
    "optimizer": "solver.set_learning_rate takes the rate of each update; `init_lr` is the rate at the start",
    "step_size": "`iter_steps` lists the updates at which the rate falls; ExponentialScheduler has `iter_interval`",
    "total_iters": "`max_iter` or `warmup_iter` is the number of updates",
    "total_steps": "max_iter",
    "warmup_steps": "warmup_iter",
}
"""Arguments of other libraries' schedules, and the arguments here, or what to do."""


def _rate(op: str, value: Any) -> float:
    """The learning rate at the start. Raises CallError for anything else, such as a solver."""
    if hasattr(value, "set_learning_rate"):
        raise CallError(
            f"{op}: expected `init_lr` to be a number, got the solver {value!r}; "
            "solver.set_learning_rate(schedule.get_learning_rate(i)) sets the rate of update i"
        )
    rate: float = _check.number(op, "init_lr", value)
    return rate


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

    @explained("PolynomialScheduler", _ELSEWHERE)
    def __init__(self, init_lr: float, max_iter: int, power: float) -> None:
        self.init_lr: float = _rate("PolynomialScheduler", init_lr)
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

    @explained("CosineScheduler", _ELSEWHERE)
    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr: float = _rate("CosineScheduler", init_lr)
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

    @explained("ExponentialScheduler", _ELSEWHERE)
    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr: float = _rate("ExponentialScheduler", init_lr)
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

    @explained("StepScheduler", _ELSEWHERE)
    def __init__(self, init_lr: float, gamma: float, iter_steps: Iterable[int]) -> None:
        self.init_lr: float = _rate("StepScheduler", init_lr)
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

    @explained("LinearWarmupScheduler", _ELSEWHERE)
    def __init__(self, scheduler: BaseLearningRateScheduler, warmup_iter: int) -> None:
        if not callable(getattr(scheduler, "get_learning_rate", None)):
            raise CallError(f"LinearWarmupScheduler: expected `scheduler` to be a schedule, got {scheduler!r}")
        self.scheduler = scheduler
        self.warmup_iter: int = _check.number("LinearWarmupScheduler", "warmup_iter", warmup_iter)

    def get_learning_rate(self, iter: int) -> float:
        """The learning rate of iteration `iter`, which counts from 0."""
        rate = self.scheduler.get_learning_rate(iter)
        return rate * (iter + 1) / self.warmup_iter if iter < self.warmup_iter else rate


class PlateauScheduler(BaseLearningRateScheduler):
    """Is multiplied by a factor when a value, such as the loss of a validation, stops improving.

    It does not depend on the iteration: `update` is called with the value, once an epoch for example. `kinnor.fit` does
    so.

    Args:
        init_lr: The learning rate at the start.
        factor: The number to multiply by, between 0 and 1.
        patience: Number of values without improvement that are passed over; the next one lowers the rate.
        threshold: Smallest relative improvement.
        min_lr: The lowest learning rate.
        mode: `"min"` if smaller values are better, `"max"` if larger ones are.

    Raises:
        TypeError: If an argument is no number.
        ValueError: If `factor` is not between 0 and 1, `patience` or `min_lr` is below zero, or `mode` is another one.

    Examples:
        >>> schedule = PlateauScheduler(0.1, factor=0.5, patience=1)
        >>> [schedule.update(loss) for loss in (3.0, 2.0, 2.0, 2.0, 1.0)]
        [0.1, 0.1, 0.1, 0.05, 0.05]
    """

    @explained("PlateauScheduler", _ELSEWHERE)
    def __init__(
        self,
        init_lr: float,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        min_lr: float = 0.0,
        mode: str = "min",
    ) -> None:
        op = "PlateauScheduler"
        self.init_lr: float = _rate(op, init_lr)
        self.factor: float = _check.number(op, "factor", factor)
        if not 0 < self.factor < 1:
            raise RangeError(f"{op}: expected `factor` to be between 0 and 1, got {factor}")
        self.patience: int = _at_least(op, "patience", patience, 0)
        self.threshold: float = _at_least(op, "threshold", threshold, 0)
        self.min_lr: float = _at_least(op, "min_lr", min_lr, 0)
        if mode not in ("min", "max"):
            raise RangeError(f"{op}: expected `mode` to be 'min' or 'max', got {mode!r}")
        self.mode = mode
        self._rate: float = self.init_lr
        self._best: float | None = None
        self._waited = 0

    def get_learning_rate(self, iter: int = 0) -> float:
        """The current learning rate; `iter` has no effect."""
        return self._rate

    def update(self, value: float) -> float:
        """Take a new value into account.

        Args:
            value: The value that is to improve.

        Returns:
            The learning rate from now on.
        """
        value = float(value)
        if self._best is None or self._is_better(value, self._best):
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        if self._waited > self.patience:
            self._rate, self._waited = float(max(self._rate * self.factor, self.min_lr)), 0
        return self._rate

    def _is_better(self, value: float, best: float) -> bool:
        """True if a value is better than the best so far by more than the threshold."""
        margin = self.threshold * abs(best)
        return value < best - margin if self.mode == "min" else value > best + margin

    def state(self) -> dict[str, Any]:
        """The state, for a checkpoint.

        Returns:
            A dict for `set_state`, which JSON can hold.
        """
        return {"rate": self._rate, "best": self._best, "waited": self._waited}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where another schedule was.

        Args:
            state: The result of its `state`.
        """
        self._rate, self._best, self._waited = state["rate"], state["best"], state["waited"]


def _at_least(op: str, name: str, value: Any, least: int) -> Any:
    """Return a number. Raises an error if it is not a number, or below `least`."""
    if _check.number(op, name, value) < least:
        raise RangeError(f"{op}: expected `{name}` to be at least {least}, got {value}")
    return value


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
