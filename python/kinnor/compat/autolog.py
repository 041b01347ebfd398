"""Logging of training runs to MLflow, under NNabla's names. Needs the extra `mlflow`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _check, monitor, parameter
from ..files.packages import needed

if TYPE_CHECKING:
    from ..files.parameter_file import PathOrFile

__all__ = ["autolog", "stop_autolog"]


class _Run(monitor.Watcher):
    """Sends records to MLflow's active run. MLflow starts a run for the first record if none is active."""

    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def value(self, name: str, index: int, value: float) -> None:
        """Logs a metric."""
        self._mlflow.log_metric(name, value, step=index)

    def file(self, name: str, path: Path) -> None:
        """Logs a file as an artifact."""
        run = self._mlflow.active_run() or self._mlflow.start_run()
        self._mlflow.log_artifact(os.fspath(path), f"runs_{run.info.run_id}/{name}")

    def saved(self, path: PathOrFile) -> None:
        """Logs a file of saved parameters as an artifact. Open files are skipped: they have no path."""
        if isinstance(path, (str, os.PathLike)):
            self.file("parameters", Path(path))


def autolog(with_save_parameters: bool = False) -> None:
    """Send all later records of monitors to MLflow's active run as well. Without one, MLflow starts a run.

    Means of `MonitorSeries` and interval times of `MonitorTimeElapsed` become metrics of the same name. Files of
    `MonitorImage` and `MonitorImageTile` become artifacts in `runs_<id of the run>/<name>`. To choose the place that
    MLflow writes to, call `mlflow.set_tracking_uri` or `mlflow.start_run`.

    Args:
        with_save_parameters: Whether the files of `nn.save_parameters` become artifacts as well, in
            `runs_<id of the run>/parameters`.

    Raises:
        ImportError: If MLflow is not installed.
    """
    wanted = _check.flag("autolog", "with_save_parameters", with_save_parameters)
    run = _Run(needed("autolog", "mlflow", "MLflow", "mlflow"))
    stop_autolog()
    monitor.watchers.append(run)
    if wanted:
        parameter.saving_callbacks.append(run.saved)


def stop_autolog() -> None:
    """Stop sending records to MLflow. Its run stays active. Does nothing without a call of `autolog` before."""
    monitor.watchers[:] = [each for each in monitor.watchers if not isinstance(each, _Run)]
    parameter.saving_callbacks[:] = [
        each for each in parameter.saving_callbacks if not isinstance(getattr(each, "__self__", None), _Run)
    ]
