"""One update step of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from .._core import NdArray

__all__ = ["Callbacks", "Updater", "each"]

Callbacks: TypeAlias = "Callable[..., Any] | Sequence[Callable[..., Any]]"


def each(callbacks: Callbacks, *args: Any) -> None:
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
            each(self.before_forward, i, e, run)
            self.loss_forward(i, e, run)
            each(self.after_forward, i, e, run)
            each(self.before_backward, i, e, run)
            self.loss_backward(i, e, run)
            each(self.after_backward, i, e, run)
        if self.comm is not None and self.grads:
            each(self.before_reduce, i, e)
            self.comm_all_reduce(i, e)
            each(self.after_reduce, i, e)
        each(self.before_update, i, e)
        self.solver_update(i, e)
        each(self.after_update, i, e)
