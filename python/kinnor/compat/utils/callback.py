"""Places where NNabla's graphical console takes part in commands.

There is no console here, so all of them do nothing.
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
        args: Arguments of the command.
    """


def result_base(base: str, suffix: str, outdir: str) -> None:
    """Name the files of results.

    Args:
        base: What the name begins with.
        suffix: What it ends with.
        outdir: The folder.
    """


def update_status(state: Any = None, start: bool = False, start_time: float | None = None) -> None:
    """Tell what the command does.

    Args:
        state: The state.
        start: Whether it begins.
        start_time: When it began.
    """


def save_train_snapshot() -> None:
    """Keep the parameters of this moment."""


def update_time_train(prediction: float | None = None) -> None:
    """Tell how long training takes.

    Args:
        prediction: Seconds.
    """


def add_train_command_arg(subparser: Any) -> None:
    """Add arguments to `train`.

    Args:
        subparser: What gets them.
    """


def get_callback_version() -> None:
    """The version of the console: there is none."""


def update_progress(text: str) -> None:
    """Tell how far the command is.

    Args:
        text: What to tell.
    """


def get_timelimit(args: Any) -> int:
    """How many seconds training may take.

    Args:
        args: Arguments of the command.

    Returns:
        -1: as many as it needs.
    """
    return -1


def check_training_time(args: Any, config: Any, timeinfo: Any, epoch: int, last_epoch: int) -> bool:
    """Whether there is time for another epoch.

    Args:
        args: Arguments of the command.
        config: The training.
        timeinfo: What it took so far.
        epoch: The epoch.
        last_epoch: The last one.

    Returns:
        True.
    """
    return True


def get_load_image_func(ext: str) -> None:
    """Another loader of images: there is none.

    Args:
        ext: Ending of their names.
    """


def get_best_from_status(args: Any) -> tuple[None, None]:
    """The best epoch so far and its error: not known.

    Args:
        args: Arguments of the command.
    """
    return None, None


def process_evaluation_result(outdir: str, filename: str) -> None:
    """Look at results.

    Args:
        outdir: The folder.
        filename: The file.
    """


def update_forward_time() -> None:
    """Tell how long evaluation takes."""
