"""Callbacks of `fit`, the run that they are given, and the record that `fit` returns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import _check
from .._core import CallError, NdArray, ParameterError, RangeError, Variable, assign_together
from .._suggest import lacks, spelled
from ..display import html_table, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..solvers import Solver

__all__ = ["Callback", "EarlyStopping", "History", "Run", "is_better", "shown"]


class History(list[dict[str, Any]]):
    """A row for each epoch, by name: `epoch`, `loss`, metrics, the same of the validation with `val_` before, and more.

    Epochs are counted from 1.

    Examples:
        >>> history = History([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 0.5}])
        >>> history.series("loss")
        [2.0, 0.5]
        >>> print(history)
        epoch  loss
        1         2
        2       0.5
    """

    def series(self, name: str) -> list[float]:
        """The values of one name, epoch by epoch.

        Args:
            name: The name, such as `val_loss`.

        Returns:
            The values of all epochs that have one.

        Raises:
            ParameterError: If no epoch has one.
        """
        known = list(dict.fromkeys(each for row in self for each in row))
        if self and name not in known:
            near = spelled(name, known)
            raise ParameterError(f"History.series: expected one of {', '.join(known)}, got {name!r}{near}")
        return [row[name] for row in self if name in row]

    if not TYPE_CHECKING:

        def __getitem__(self, place: Any) -> Any:
            if isinstance(place, str):
                raise CallError(
                    f"History: expected the number of an epoch, got {place!r}; series({place!r}) returns its values"
                )
            return super().__getitem__(place)

        def __getattr__(self, name: str) -> Any:
            lacks(self, name, "HISTORY")

    def __repr__(self) -> str:
        rows = self._rows()
        return "\n".join(text_table(rows, right=range(1, len(rows[0])))) if rows[0] else "no epochs"

    def _repr_html_(self) -> str:
        """Returns the table as HTML, for notebooks."""
        rows = self._rows()
        return html_table(rows, right=range(1, len(rows[0])))

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns the names of all values, then the values of each epoch, as text."""
        names = list(dict.fromkeys(name for row in self for name in row))
        return [tuple(names), *(tuple(shown(row.get(name, "")) for name in names) for row in self)]


def shown(value: Any) -> str:
    """A value in four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Run:
    """A training run, as callbacks see it.

    Attributes:
        model: The module or function that `fit` was called with.
        solver: The solver.
        parameters: Parameters and running statistics by name.
        epoch: Number of the epoch, from 1.
        step: Number of updates so far, in all epochs.
        logs: Values of this epoch by name; callbacks may add others.
        history: The rows of `logs` of all epochs so far.
        stopped: True after a call of `stop`.
    """

    def __init__(self, model: Any, solver: Solver, history: History) -> None:
        self.model, self.solver, self.history = model, solver, history
        self.parameters: Mapping[str, Variable] = {}
        self.epoch = self.step = 0
        self.logs: dict[str, Any] = {}
        self.stopped = False

    def stop(self) -> None:
        """End the training after this step or epoch."""
        self.stopped = True


class Callback:
    """Methods that `fit` calls; a subclass defines some of them. A plain function is called as `on_epoch_end`.

    Examples:
        >>> class Loud(Callback):
        ...     def on_epoch_end(self, run):
        ...         print(run.epoch, run.logs["loss"])
    """

    def on_train_begin(self, run: Run) -> None:
        """Called before the first epoch.

        Args:
            run: The run.
        """

    def on_epoch_begin(self, run: Run) -> None:
        """Called before each epoch.

        Args:
            run: The run.
        """

    def on_step_end(self, run: Run) -> None:
        """Called after each update.

        Args:
            run: The run.
        """

    def on_epoch_end(self, run: Run) -> None:
        """Called after each epoch and its validation.

        Args:
            run: The run.
        """

    def on_train_end(self, run: Run) -> None:
        """Called after the last epoch.

        Args:
            run: The run.
        """

    def state(self) -> Any:
        """The state that a checkpoint keeps.

        Returns:
            Anything that JSON can hold.
        """

    def set_state(self, state: Any) -> None:
        """Take a state from a checkpoint.

        Args:
            state: The result of `state` of an earlier run.
        """

    def variables(self) -> dict[str, Variable]:
        """Variables that a checkpoint keeps and loads, too.

        Returns:
            Variables by name; asked for after `set_state`.
        """
        return {}


class EarlyStopping(Callback):
    """Ends the training when a value has not improved for some epochs, and restores the best parameters.

    Args:
        monitor: Name of the value.
        patience: Number of epochs without improvement after which the training ends.
        min_delta: Smallest change that is an improvement.
        mode: `"min"` if smaller is better, `"max"` if larger is.
        restore_best: True to restore parameters and running statistics of the best epoch at the end.

    Attributes:
        best: The best value; None before the first epoch.
        best_epoch: Its epoch; 0 before the first one.

    Raises:
        RangeError: If `mode` is another one.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: str = "min",
        restore_best: bool = True,
    ) -> None:
        self.monitor, self.min_delta, self.mode = monitor, min_delta, check_mode("EarlyStopping", mode)
        self.patience = _check.count("EarlyStopping", "patience", patience)
        self.restore_best = restore_best
        self.best: float | None = None
        self.best_epoch = 0
        self._kept: dict[str, Variable] = {}
        self._is_kept = False

    def on_train_begin(self, run: Run) -> None:
        """Allocate copies of the parameters, with `restore_best`."""
        if self.restore_best and not self._kept:
            self._kept = {name: Variable(v.shape) for name, v in run.parameters.items()}

    def on_epoch_end(self, run: Run) -> None:
        """Keep the parameters if the value is the best so far, else end the training after `patience` epochs."""
        value = monitored("EarlyStopping", self.monitor, run.logs)
        if self.best is None or is_better(value, self.best, self.min_delta, self.mode):
            self.best, self.best_epoch = value, run.epoch
            for name, kept in self._kept.items():
                kept.data = NdArray.from_numpy_array(run.parameters[name].data.get_data("r"))
            self._is_kept = bool(self._kept)
        elif run.epoch - self.best_epoch >= self.patience:
            run.stop()

    def on_train_end(self, run: Run) -> None:
        """Restore the best parameters."""
        if self._is_kept:
            assign_together([(run.parameters[name].data, v.data.get_data("r")) for name, v in self._kept.items()])

    def state(self) -> Any:
        """The best value, its epoch, and whether its parameters are kept."""
        return {"best": self.best, "best_epoch": self.best_epoch, "is_kept": self._is_kept}

    def set_state(self, state: Any) -> None:
        """Take the state from a checkpoint."""
        self.best, self.best_epoch, self._is_kept = state["best"], state["best_epoch"], state["is_kept"]

    def variables(self) -> dict[str, Variable]:
        """The parameters of the best epoch, which a checkpoint keeps."""
        return self._kept if self._is_kept else {}


def check_mode(op: str, mode: str) -> str:
    """Refuse what is neither "min" nor "max"."""
    if mode not in ("min", "max"):
        raise RangeError(f"{op}: expected `mode` to be 'min' or 'max', got {mode!r}")
    return mode


def is_better(value: float, best: float, min_delta: float, mode: str) -> bool:
    """True if a value improves on the best one. NaN improves on nothing, and anything improves on NaN."""
    if math.isnan(best):
        return not math.isnan(value)
    return value < best - min_delta if mode == "min" else value > best + min_delta


def monitored(op: str, name: str, logs: Mapping[str, Any]) -> float:
    """The value of a name in the logs of an epoch."""
    if name not in logs:
        missing = name.startswith("val_") and not any(each.startswith("val_") for each in logs)
        hint = "; fit measures it if `validation` is given" if missing else spelled(name, logs)
        raise ParameterError(f"{op}: expected `monitor` to be one of {list(logs)}, got {name!r}{hint}")
    return float(logs[name])
