"""The parts of a training loop: epochs and iterations, an update step, an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..files.progress import each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from .._core import NdArray

__all__ = ["Evaluator", "Trainer", "Updater"]

Callbacks: TypeAlias = "Callable[..., Any] | Sequence[Callable[..., Any]]"
"""A function, or several."""


def notify(callbacks: Callbacks, *args: Any) -> None:
    """Call a function, or each function of a list, with the same arguments."""
    for callback in [callbacks] if callable(callbacks) else callbacks:
        callback(*args)


class Updater:
    """Takes an update step: feeds data, runs forward and backward, sums gradients over processes, updates.

    The functions get the iteration `i` and the epoch `e`. Functions of forward and backward runs also get the number of
    the run. A callback is a function or a list of functions.

    Args:
        train_data_feeder: Puts data into the inputs.
        solver_zero_grad: Sets gradients to zero.
        solver_update: Runs the solver's update.
        loss_forward: Runs the loss forward.
        loss_backward: Runs the loss backward.
        loss_forward_callback_on_start: Called before a forward run.
        loss_forward_callback_on_finish: Called after a forward run.
        loss_backward_callback_on_start: Called before a backward run.
        loss_backward_callback_on_finish: Called after a backward run.
        comm_all_reduce_callback_on_start: Called before the gradients are summed over processes.
        comm_all_reduce: Sums the gradients over processes.
        comm_all_reduce_callback_on_finish: Called after the gradients are summed over processes.
        solver_update_callback_on_start: Called before the solver's update.
        solver_update_callback_on_finish: Called after the solver's update.
        accum_grad: Number of forward and backward runs in a step; their gradients are summed.
        comm: The communicator; None for a single process.
        grads: The gradients to sum over processes.
    """

    def __init__(
        self,
        train_data_feeder: Callable[[int, int, int], Any],
        solver_zero_grad: Callable[[int, int], Any],
        solver_update: Callable[[int, int], Any],
        loss_forward: Callable[[int, int, int], Any] = lambda *_: True,
        loss_backward: Callable[[int, int, int], Any] = lambda *_: True,
        loss_forward_callback_on_start: Callbacks = (),
        loss_forward_callback_on_finish: Callbacks = (),
        loss_backward_callback_on_start: Callbacks = (),
        loss_backward_callback_on_finish: Callbacks = (),
        comm_all_reduce_callback_on_start: Callbacks = (),
        comm_all_reduce: Callable[[int, int], Any] = lambda *_: True,
        comm_all_reduce_callback_on_finish: Callbacks = (),
        solver_update_callback_on_start: Callbacks = (),
        solver_update_callback_on_finish: Callbacks = (),
        accum_grad: int = 1,
        comm: Any = None,
        grads: Sequence[NdArray] = (),
    ) -> None:
        self.train_data_feeder, self.solver_zero_grad, self.solver_update = (
            train_data_feeder,
            solver_zero_grad,
            solver_update,
        )
        self.loss_forward, self.loss_backward, self.comm_all_reduce = loss_forward, loss_backward, comm_all_reduce
        self.before_forward, self.after_forward = loss_forward_callback_on_start, loss_forward_callback_on_finish
        self.before_backward, self.after_backward = loss_backward_callback_on_start, loss_backward_callback_on_finish
        self.before_reduce, self.after_reduce = comm_all_reduce_callback_on_start, comm_all_reduce_callback_on_finish
        self.before_update, self.after_update = solver_update_callback_on_start, solver_update_callback_on_finish
        self.accum_grad, self.comm, self.grads = accum_grad, comm, list(grads)

    def update(self, i: int, e: int) -> None:
        """Take a step.

        Args:
            i: The iteration, passed to the functions.
            e: The epoch, passed to the functions.
        """
        self.solver_zero_grad(i, e)
        for run in range(self.accum_grad):
            self.train_data_feeder(i, e, run)
            notify(self.before_forward, i, e, run)
            self.loss_forward(i, e, run)
            notify(self.after_forward, i, e, run)
            notify(self.before_backward, i, e, run)
            self.loss_backward(i, e, run)
            notify(self.after_backward, i, e, run)
        if self.comm is not None and self.grads:
            notify(self.before_reduce, i, e)
            self.comm_all_reduce(i, e)
            notify(self.after_reduce, i, e)
        notify(self.before_update, i, e)
        self.solver_update(i, e)
        notify(self.after_update, i, e)


class Evaluator:
    """Runs a graph for evaluation, a fixed number of times.

    Args:
        eval_data_feeder: Called with epoch and iteration, to fill the inputs.
        eval_graph_forward: Called with epoch and iteration, to run the graph.
        eval_callback_on_start: Called with the epoch before the first iteration; a function or a list.
        eval_callback_on_finish: Called with the epoch after the last iteration; a function or a list.
        val_iter: Number of iterations.
    """

    def __init__(
        self,
        eval_data_feeder: Callable[[int, int], Any],
        eval_graph_forward: Callable[[int, int], Any],
        eval_callback_on_start: Callbacks = (),
        eval_callback_on_finish: Callbacks = (),
        val_iter: int = 1,
    ) -> None:
        self.eval_data_feeder, self.eval_graph_forward = eval_data_feeder, eval_graph_forward
        self.eval_callback_on_start, self.eval_callback_on_finish = eval_callback_on_start, eval_callback_on_finish
        self.val_iter = val_iter

    def evaluate(self, e: int) -> None:
        """Run the evaluation.

        Args:
            e: The epoch, passed to the callbacks.
        """
        notify(self.eval_callback_on_start, e)
        for i in range(self.val_iter):
            self.eval_data_feeder(e, i)
            self.eval_graph_forward(e, i)
        notify(self.eval_callback_on_finish, e)


class Trainer:
    """Trains a worker: calls its methods in a fixed order.

    The worker defines the steps: `load_checkpoint` (which returns the first epoch), `training_prepare`,
    `save_model_at_start`, `max_epoch`, `iter_per_epoch`, `epoch_loop_start(e)`, `evaluate_at_epoch_start(e)`,
    `iter_loop_start(i, e)`, `update_in_iteration(i, e)`, `iter_loop_end(i, e)`, `epoch_loop_end(e)`,
    `save_checkpoint_at_epoch_end(e)`, `evaluate_at_training_end`, `save_model_at_end`, `training_complete` and `brief`.

    Args:
        worker: The worker.
    """

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.start_epoch = 0

    def train(self) -> None:
        """Train from the first epoch to the last."""
        worker = self.worker
        self.start_epoch = worker.load_checkpoint()
        worker.training_prepare()
        worker.save_model_at_start()
        for e in range(self.start_epoch, self.start_epoch + worker.max_epoch()):
            worker.epoch_loop_start(e)
            worker.evaluate_at_epoch_start(e)
            for i in each(range(worker.iter_per_epoch()), f"epoch {e + 1}"):
                worker.iter_loop_start(i, e)
                worker.update_in_iteration(i, e)
                worker.iter_loop_end(i, e)
            worker.epoch_loop_end(e)
            worker.save_checkpoint_at_epoch_end(e)
        worker.evaluate_at_training_end()
        worker.save_model_at_end()
        worker.training_complete()

    def brief(self) -> Any:
        """A summary of the training.

        Returns:
            The result of the worker's `brief`.
        """
        return self.worker.brief()
