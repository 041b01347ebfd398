"""Evaluation of a graph over a number of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .updater import Callbacks, each

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Evaluator"]


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
        each(self.eval_callback_on_start, e)
        for i in range(self.val_iter):
            self.eval_data_feeder(e, i)
            self.eval_graph_forward(e, i)
        each(self.eval_callback_on_finish, e)
