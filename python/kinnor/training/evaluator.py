"""One evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .updater import Callbacks, each

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Evaluator"]


class Evaluator:
    """Feeds and runs a graph for evaluation a number of times.

    Args:
        eval_data_feeder: Called with epoch and iteration, to put data into the inputs.
        eval_graph_forward: Called with epoch and iteration, to run.
        eval_callback_on_start: Called with the epoch before; one or a list.
        eval_callback_on_finish: Called with the epoch after; one or a list.
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
        """Evaluate.

        Args:
            e: The epoch, for the callbacks.
        """
        each(self.eval_callback_on_start, e)
        for i in range(self.val_iter):
            self.eval_data_feeder(e, i)
            self.eval_graph_forward(e, i)
        each(self.eval_callback_on_finish, e)
