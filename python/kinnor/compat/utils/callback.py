"""Hooks of NNabla's graphical console into commands.

Kinnor has no console: the functions do nothing.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "add_train_command_arg",
    "alternative_cli",
    "check_training_time",
    "get_best_from_status",
    "get_callback_version",
    "get_load_image_func",
    "get_timelimit",
    "process_evaluation_result",
    "result_base",
    "save_train_snapshot",
    "update_forward_time",
    "update_progress",
    "update_status",
    "update_time_train",
]


def alternative_cli(args: Any) -> None:
    """Run another command line.

    Args:
        args: Parsed arguments of the command.
    """


def result_base(base: str, suffix: str, outdir: str) -> None:
    """Choose the name of the result files. Does nothing.

    Args:
        base: Prefix of the name.
        suffix: Suffix of the name.
        outdir: The folder.
    """


def update_status(state: Any = None, start: bool = False, start_time: float | None = None) -> None:
    """Report the state of the command. Does nothing.

    Args:
        state: The state.
        start: Whether the state begins.
        start_time: Time of the start.
    """


def save_train_snapshot() -> None:
    """Save the current parameters. Does nothing."""


def update_time_train(prediction: float | None = None) -> None:
    """Report the time of the training. Does nothing.

    Args:
        prediction: Predicted seconds.
    """


def add_train_command_arg(subparser: Any) -> None:
    """Add arguments to `train`. Does nothing.

    Args:
        subparser: The parser of the command.
    """


def get_callback_version() -> None:
    """The version of the console: None."""


def update_progress(text: str) -> None:
    """Report the progress of the command. Does nothing.

    Args:
        text: The progress as text.
    """


def get_timelimit(args: Any) -> int:
    """Time limit of the training in seconds.

    Args:
        args: Parsed arguments of the command.

    Returns:
        -1: no limit.
    """
    return -1


def check_training_time(args: Any, config: Any, timeinfo: Any, epoch: int, last_epoch: int) -> bool:
    """True if there is time for another epoch.

    Args:
        args: Parsed arguments of the command.
        config: The training.
        timeinfo: Times so far.
        epoch: The epoch.
        last_epoch: The last one.

    Returns:
        True.
    """
    return True


def get_load_image_func(ext: str) -> None:
    """The console's loader of images: None.

    Args:
        ext: Extension of the images.
    """


def get_best_from_status(args: Any) -> tuple[None, None]:
    """The best epoch so far and its error: unknown.

    Args:
        args: Parsed arguments of the command.
    """
    return None, None


def process_evaluation_result(outdir: str, filename: str) -> None:
    """Process the results of an evaluation. Does nothing.

    Args:
        outdir: The folder.
        filename: The file.
    """


def update_forward_time() -> None:
    """Report the time of the evaluation. Does nothing."""
