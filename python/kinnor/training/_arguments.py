"""Arguments of `fit`: checks, and the names that other libraries give them."""

from __future__ import annotations

from typing import Any

from .._core import CallError

__all__ = ["ELSEWHERE", "SURPLUS", "check_arguments"]

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
