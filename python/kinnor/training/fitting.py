"""`fit`: a training run with validation, metrics, callbacks and checkpoints in one call."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _check, _core, solvers
from .._check import explained
from .._core import CallError, ParameterError, RangeError, Variable
from ..checkpoint import load_checkpoint, save_checkpoint, values_of
from ..core import Module
from ..learning_rate_scheduler import PlateauScheduler
from ..parameter import get_parameters
from .batches import BatchGraphs, batches
from .callbacks import Callback, History, Run, monitored, shown
from .loop import Evaluator, Trainer, Updater
from .losses import loss_of, metrics_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..learning_rate_scheduler import BaseLearningRateScheduler
    from ..solvers import Solver
    from .batches import Batch, Batches, BatchGraph
    from .losses import LossName, Measure, MetricName

__all__ = ["ELSEWHERE", "SURPLUS", "check_arguments", "fit"]

ELSEWHERE = {
    "accumulate_grad_batches": "accumulate",
    "ckpt_path": "checkpoint",
    "criterion": "loss",
    "grad_clip": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "loss_fn": "loss",
    "lr_scheduler": "schedule",
    "max_epochs": "epochs",
    "max_grad_norm": "clip_norm",
    "num_epochs": "epochs",
    "optimizer": "solver",
    "precision": "write the call in `with kinnor.autocast():`",
    "patience": "write callbacks=[kinnor.training.EarlyStopping(patience=...)]",
    "lr": "write solver=kinnor.solvers.Adam(alpha=...)",
    "learning_rate": "write solver=kinnor.solvers.Adam(alpha=...)",
    "scheduler": "schedule",
    "train_data": "data",
    "valid": "validation",
    "validation_data": "validation",
}
"""Arguments of training loops of other libraries, and the arguments of `fit` for the same purpose."""

SURPLUS = (
    "model, data and loss, then arguments by name; inputs and targets are one tuple: "
    "fit(model, (inputs, targets), loss)"
)
"""The arguments of `fit` without a name, for the error about too many of them."""


def check_arguments(solver: Any, schedule: Any, callbacks: Any) -> None:
    """Refuses a class or a name as the solver, a function as the schedule, and a single callback."""
    if solver is not None and (isinstance(solver, (str, type)) or not hasattr(solver, "get_parameters")):
        got = repr(solver) if isinstance(solver, str) else getattr(solver, "__name__", type(solver).__name__)
        raise CallError(f"fit: expected `solver` to be a solver such as kinnor.solvers.Adam(), got {got}")
    if schedule is not None and not hasattr(schedule, "get_learning_rate"):
        got = type(schedule).__name__
        raise CallError(f"fit: expected `schedule` to be one of kinnor.learning_rate_scheduler, got {got}")
    if not hasattr(callbacks, "__iter__"):
        raise CallError(f"fit: expected `callbacks` to be a list, got {type(callbacks).__name__}")


@explained("fit", ELSEWHERE, SURPLUS)
def fit(
    model: Module | Callable[..., Any],
    data: Any,
    loss: Measure | LossName | None = None,
    *,
    solver: Solver | None = None,
    epochs: int = 10,
    batch_size: int = 32,
    validation: Any = None,
    metrics: MetricName | Sequence[Measure | MetricName] | Mapping[str, Measure | MetricName] = (),
    callbacks: Iterable[Callback | Callable[[Run], object]] = (),
    schedule: BaseLearningRateScheduler | None = None,
    monitor: str | None = None,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    accumulate: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    parameters: Module | Mapping[str, Variable] | None = None,
    shuffle: bool = True,
    verbose: bool = True,
) -> History:
    """Train a model: epochs over batches, with validation, metrics, callbacks and a checkpoint after each epoch.

    Graphs are static and kept for each shape of a batch; with `auto_forward` they are built anew in each step. A module
    is in training mode in graphs for training, and in evaluation mode in graphs for validation.

    Args:
        model: A module, or a function of the arrays of a batch as variables. With `loss`, the last array of a batch is
            the target, and the model gets the others. Without, the model returns the loss, or a tuple of the loss and a
            dict of further values. A function gets `training=` if it has such an argument.
        data: A tuple of arrays with a row for each example, a `DataIterator`, or a list of batches.
        loss: A function of output and target, or one of "cross_entropy", "binary_cross_entropy" and "mse". The
            first two take logits.
        solver: The solver; `Adam` by default. A solver without parameters gets the parameters of the model.
        epochs: Number of epochs in all, those before a resumed checkpoint included.
        batch_size: Rows of a batch, of arrays.
        validation: Data of the same kind, which each epoch is followed by. Each row counts once, also of an iterator.
            An iterator with `stop_exhausted` leaves out the rows that do not fill a batch.
        metrics: Functions of output and target by name, functions, or names such as "accuracy". For "cross_entropy" the
            accuracy counts classes, and for "binary_cross_entropy" the answers yes and no.
        callbacks: `Callback` objects such as `EarlyStopping`, or functions that are called with the `Run` after each
            epoch.
        schedule: A schedule of learning rates. It counts updates; a `PlateauScheduler` follows `monitor`.
        monitor: Name of the value that a `PlateauScheduler` follows; `val_loss` by default, `loss` without validation.
        weight_decay: Rate of the solver's weight decay; 0 for none.
        clip_norm: Largest common norm of all gradients; 0 for no limit.
        accumulate: Number of batches whose mean gradient makes an update. The last update of an epoch may have fewer.
        checkpoint: Path of a checkpoint that is written after each epoch.
        resume: True to go on from the checkpoint if the file exists. A run that has all its epochs trains no further.
        parameters: A module or parameters by name, if `model` is a function that has them elsewhere than in the current
            parameter scope.
        shuffle: True to train on arrays in random order.
        verbose: True to print a line for each epoch, and for a checkpoint that is read. Progress bars appear on
            terminals and in notebooks only.

    Returns:
        A row of values for each epoch.

    Raises:
        CallError: If data, loss or metrics are none.
        RangeError: If `epochs` is negative or `accumulate` is below 1.
        ParameterError: If a checkpoint does not fit.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L, kinnor.solvers as S
        >>> from kinnor.datasets import digits
        >>> nn.seed(0)
        >>> images, labels = digits()
        >>> network = L.Sequential(L.Flatten(), L.Linear(64, 32), L.ReLU(), L.Linear(32, 10))
        >>> history = nn.fit(
        ...     network, (images[:1500], labels[:1500]), "cross_entropy", solver=S.Adam(alpha=0.01),
        ...     validation=(images[1500:], labels[1500:]), metrics="accuracy", epochs=3, verbose=False,
        ... )
        >>> list(history[-1])
        ['epoch', 'loss', 'accuracy', 'val_loss', 'val_accuracy', 'learning_rate', 'seconds']
        >>> history[-1]["val_accuracy"] > 0.7
        True
    """
    if not callable(model):
        raise CallError(f"fit: expected `model` to be a module or a function, got {type(model).__name__}")
    check_arguments(solver, schedule, callbacks)
    if (epochs := _check.whole("fit", "epochs", epochs)) < 0:
        raise RangeError(f"fit: expected `epochs` to be at least 0, got {epochs}")
    accumulate = _check.count("fit", "accumulate", accumulate)
    measure = loss_of(loss)
    graphs = BatchGraphs(model, measure, metrics_of(metrics, measure))
    worker = _Worker(
        graphs,
        batches(data, batch_size, True, shuffle),
        None if validation is None else batches(validation, batch_size, False),
        Run(model, solvers.Adam() if solver is None else solver, History()),
        [each if isinstance(each, Callback) else _Function(each) for each in callbacks],
        _Settings(
            epochs, schedule, monitor, weight_decay, clip_norm, accumulate, checkpoint, resume, parameters, verbose
        ),
    )
    with graphs.modes_kept():
        try:
            Trainer(worker).train()
        except _Stopped:
            worker.training_complete()
    return worker.run.history


class _Settings(NamedTuple):
    """Arguments of `fit` as they were given."""

    epochs: int
    """Number of epochs in all."""
    schedule: BaseLearningRateScheduler | None
    """The schedule of learning rates, or None."""
    monitor: str | None
    """Name of the value that a `PlateauScheduler` follows, or None for the default."""
    weight_decay: float
    """Rate of the weight decay; 0 for none."""
    clip_norm: float
    """Largest common norm of all gradients; 0 for no limit."""
    accumulate: int
    """Number of batches for an update."""
    checkpoint: str | os.PathLike[str] | None
    """Path of the checkpoint, or None."""
    resume: bool
    """Whether to go on from the checkpoint if the file exists."""
    parameters: Module | Mapping[str, Variable] | None
    """A module or parameters by name, or None for the model or the current scope."""
    verbose: bool
    """Whether to print a line for each epoch."""


class _Stopped(Exception):
    """Ends the loop of the trainer."""


class _Function(Callback):
    """A function as a callback."""

    def __init__(self, function: Callable[[Run], object]) -> None:
        self.on_epoch_end = function  # type: ignore[assignment,method-assign]


class _Worker:
    """The methods that a `Trainer` calls."""

    def __init__(
        self,
        graphs: BatchGraphs,
        data: Batches,
        validation: Batches | None,
        run: Run,
        callbacks: Sequence[Callback],
        settings: _Settings,
    ) -> None:
        self.graphs, self.data, self.validation = graphs, data, validation
        self.run, self.callbacks, self.settings = run, callbacks, settings
        self.start = 0
        self.graph: BatchGraph | None = None
        self.means = _Means()
        self.source: Iterator[Batch] = iter(())
        self.first: Batch | None = None
        self.updater = Updater(
            self._feed,
            lambda i, e: self.run.solver.zero_grad(),
            lambda i, e: self.run.solver.update(),
            self._forward,
            self._backward,
            solver_update_callback_on_start=self._prepare_update,
            accum_grad=settings.accumulate,
        )
        n_evaluations = 0 if validation is None else len(validation)
        self.evaluator = Evaluator(self._feed_validation, self._forward, val_iter=n_evaluations)

    # --- The loop

    def load_checkpoint(self) -> int:
        """Build the first graph, which makes parameters, and read the checkpoint. Returns the first epoch."""
        iterator = self.data.iterator
        self.first = next(self.data.epoch(0))
        if not _core.auto_forward_mode() or not self._all_parameters():
            self.graphs.of(self.first, True)
        run, settings = self.run, self.settings
        run.parameters = self._parameters()
        if not run.solver.get_parameters():
            run.solver.set_parameters({name: v for name, v in run.parameters.items() if v.need_grad})
        for callback in self.callbacks:
            callback.on_train_begin(run)
        path = settings.checkpoint
        if path is not None and settings.resume and Path(path).exists():
            if not isinstance(found := values_of(path), dict) or not set(self._values(0)) - {"graphs"} <= set(found):
                raise ParameterError(f"fit: expected a checkpoint that fit has written, got another one: {path}")
            held: dict[str, Any] = {"solvers": {"solver": run.solver}, "iterators": _named(iterator)}
            values = load_checkpoint(path, parameters=run.parameters, **held)
            self._set_values(values)
            more = self._variables()
            if more:
                load_checkpoint(path, parameters=more)
            self.first = None
            self.start = settings.epochs if values["stopped"] else values["epoch"]
            if settings.verbose:
                done = f"{path} has {values['epoch']} of {settings.epochs} epochs"
                why = "stopped by a callback" if values["stopped"] else "nothing is left to train"
                print(f"{done}, {why}" if self.start >= settings.epochs else f"{done}, the run goes on from there")
        return self.start

    def max_epoch(self) -> int:
        """Returns the number of epochs that are left."""
        return max(0, self.settings.epochs - self.start)

    def iter_per_epoch(self) -> int:
        """Returns the number of updates of an epoch."""
        return max(1, -(-len(self.data) // self.settings.accumulate))

    def training_prepare(self) -> None:
        """Does nothing."""

    save_model_at_start = evaluate_at_training_end = save_model_at_end = training_prepare

    def epoch_loop_start(self, e: int) -> None:
        """Begin an epoch."""
        self.run.epoch, self.run.logs, self.begun = e + 1, {"epoch": e + 1}, monotonic()
        self.means = _Means()
        self.source = self._following(e)
        for callback in self.callbacks:
            callback.on_epoch_begin(self.run)

    def _following(self, e: int) -> Iterator[Batch]:
        """The batches of epoch `e`. The first epoch begins with the batch that was read to build the graph."""
        if self.first is not None and self.data.iterator is not None:
            yield self.first
        self.first = None
        yield from self.data.epoch(e)

    def evaluate_at_epoch_start(self, e: int) -> None:
        """Does nothing."""

    def iter_loop_start(self, i: int, e: int) -> None:
        """Does nothing."""

    def update_in_iteration(self, i: int, e: int) -> None:
        """Make an update."""
        self.updater.accum_grad = max(1, min(self.settings.accumulate, len(self.data) - i * self.settings.accumulate))
        self.updater.update(i, e)
        self.run.step += 1

    def epoch_loop_end(self, e: int) -> None:
        """Validate, set the learning rate, and call the callbacks."""
        run, settings = self.run, self.settings
        run.logs.update(self.means.found())
        if self.validation is not None:
            self.means = _Means()
            self.source = self.validation.epoch(e)
            self.evaluator.evaluate(e)
            run.logs.update({f"val_{name}": value for name, value in self.means.found().items()})
        run.logs["learning_rate"] = run.solver.learning_rate()
        run.logs["seconds"] = monotonic() - self.begun
        if isinstance(settings.schedule, PlateauScheduler):
            name = settings.monitor or ("loss" if self.validation is None else "val_loss")
            settings.schedule.update(monitored("fit", name, run.logs))
        for callback in self.callbacks:
            callback.on_epoch_end(run)
        run.history.append(run.logs)
        if settings.verbose:
            texts = [f"{name} {shown(value)}" for name, value in run.logs.items() if name != "epoch"]
            sys.stdout.write(f"epoch {run.epoch} of {settings.epochs}: {', '.join(texts)}\n")

    def save_checkpoint_at_epoch_end(self, e: int) -> None:
        """Write the checkpoint, and end the training if a callback asked for it."""
        run, path = self.run, self.settings.checkpoint
        if path is not None:
            save_checkpoint(
                path,
                parameters={**run.parameters, **self._variables()},
                solvers={"solver": run.solver},
                iterators=_named(self.data.iterator),
                values=self._values(e + 1),
            )
        if run.stopped:
            raise _Stopped

    def training_complete(self) -> None:
        """Call the callbacks."""
        for callback in self.callbacks:
            callback.on_train_end(self.run)

    # --- A step

    def iter_loop_end(self, i: int, e: int) -> None:
        """Call the callbacks, and end the training if one of them asks for it."""
        for callback in self.callbacks:
            callback.on_step_end(self.run)
        if self.run.stopped:
            raise _Stopped

    def _feed(self, i: int, e: int, run: int) -> None:
        """Takes the next training batch, and its graph."""
        self.graph = self.graphs.of(next(self.source), True)

    def _feed_validation(self, e: int, i: int) -> None:
        """Takes the next validation batch, and its graph."""
        self.graph = self.graphs.of(next(self.source), False)

    def _forward(self, *place: int) -> None:
        """Runs the current graph forward, unless it ran as it was built, and adds its values to the means."""
        graph = self._graph()
        if not _core.auto_forward_mode():
            _core.forward_all([graph.loss, *graph.values.values()], clear_no_need_grad=True)
        self.means.add(graph)

    def _backward(self, *place: int) -> None:
        """Runs the current graph backward. `place`, the numbers of step and epoch, has no effect."""
        self._graph().loss.backward(clear_buffer=True)

    def _prepare_update(self, i: int, e: int) -> None:
        """Scales, clips and decays the gradients and sets the learning rate, as the settings say."""
        solver, settings = self.run.solver, self.settings
        if self.updater.accum_grad > 1:
            solver.scale_grad(1 / self.updater.accum_grad)
        if settings.schedule is not None:
            solver.set_learning_rate(settings.schedule.get_learning_rate(self.run.step))
        if settings.clip_norm:
            solver.clip_grad_by_global_norm(settings.clip_norm)
        if settings.weight_decay:
            solver.weight_decay(settings.weight_decay)

    def _graph(self) -> BatchGraph:
        """Returns the graph of the current batch."""
        assert self.graph is not None
        return self.graph

    # --- Parameters and checkpoints

    def _all_parameters(self) -> dict[str, Variable]:
        """All parameters by name: of the setting `parameters`, of the model, or of the current parameter scope."""
        model, source = self.graphs.model, self.settings.parameters
        if source is None and hasattr(model, "get_parameters"):
            source = model.state_dict() if isinstance(model, Module) else model.get_parameters()
        found = get_parameters(grad_only=False) if source is None else source
        return dict(found.state_dict() if isinstance(found, Module) else found)

    def _parameters(self) -> dict[str, Variable]:
        """Returns the parameters of the model by path. Raises ParameterError if none requires a gradient."""
        named = self._all_parameters()
        if not any(v.need_grad for v in named.values()):
            got = "only frozen ones" if named else "none; `parameters=` says where they are"
            raise ParameterError(f"fit: expected a model with parameters to train, got {got}")
        return named

    def _variables(self) -> dict[str, Variable]:
        """Returns the variables of all callbacks, for the checkpoint."""
        return {
            f"callbacks/{place}/{name}": v
            for place, callback in enumerate(self.callbacks)
            for name, v in callback.variables().items()
        }

    def _values(self, epoch: int) -> dict[str, Any]:
        """Returns the progress of the run as plain values, for the checkpoint."""
        schedule = self.settings.schedule
        return {
            "epoch": epoch,
            "step": self.run.step,
            "stopped": self.run.stopped,
            "history": list(self.run.history),
            "learning_rate": self.run.solver.learning_rate(),
            "schedule": schedule.state() if isinstance(schedule, PlateauScheduler) else None,
            "callbacks": [callback.state() for callback in self.callbacks],
            "graphs": self.graphs.positions(),
        }

    def _set_values(self, values: Any) -> None:
        """Continues at the progress that a checkpoint has."""
        self.run.step = values["step"]
        self.run.history[:] = values["history"]
        solver = self.run.solver
        rate = solver.learning_rate()
        if values["learning_rate"] not in (rate, float(np.float32(rate))):  # Old checkpoints have single precision.
            solver.set_learning_rate(values["learning_rate"])
        if isinstance(self.settings.schedule, PlateauScheduler) and values["schedule"] is not None:
            self.settings.schedule.set_state(values["schedule"])
        self.graphs.set_positions(values.get("graphs", []))
        for callback, state in zip(self.callbacks, values["callbacks"], strict=False):
            if state is not None:
                callback.set_state(state)


class _Means:
    """Means of values over batches, each with the weight of its number of rows."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.size = 0

    def add(self, graph: BatchGraph) -> None:
        """Add the values of a batch."""
        rows = graph.inputs[0].shape[0] if graph.inputs and graph.inputs[0].ndim else 1
        self.size += rows
        for name, value in {"loss": graph.loss, **graph.values}.items():
            self.sums[name] = self.sums.get(name, 0.0) + rows * float(value.item())

    def found(self) -> dict[str, float]:
        """Returns the means."""
        return {name: value / max(self.size, 1) for name, value in self.sums.items()}


def _named(iterator: Any) -> dict[str, Any]:
    """Returns a data iterator by its name in the checkpoint, or an empty dict if there is none."""
    return {} if iterator is None else {"data": iterator}
