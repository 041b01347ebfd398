"""The loop over epochs and iterations."""

from __future__ import annotations

from typing import Any

from ..files.progress import each

__all__ = ["Trainer"]


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
