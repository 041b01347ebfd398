"""Records of a training run in MLflow, by NNabla's names: the extra `mlflow`."""

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
    """MLflow's active run, or the one that it starts for the first record."""

    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def value(self, name: str, index: int, value: float) -> None:
        self._mlflow.log_metric(name, value, step=index)

    def file(self, name: str, path: Path) -> None:
        run = self._mlflow.active_run() or self._mlflow.start_run()
        self._mlflow.log_artifact(os.fspath(path), f"runs_{run.info.run_id}/{name}")

    def saved(self, path: PathOrFile) -> None:
        """Parameters were saved; those that went to an open file are not known to MLflow."""
        if isinstance(path, (str, os.PathLike)):
            self.file("parameters", Path(path))


def autolog(with_save_parameters: bool = False) -> None:
    """Send what monitors record from now on to MLflow too, into its active run; without one it starts a run.

    A mean of `MonitorSeries` and the seconds of an interval of `MonitorTimeElapsed` are metrics of the same name.
    Files of `MonitorImage` and `MonitorImageTile` are artifacts in `runs_<id of the run>/<name>`. Where MLflow writes
    is its own affair: `mlflow.set_tracking_uri`, `mlflow.start_run`.

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
        parameter.told_of_saving.append(run.saved)


def stop_autolog() -> None:
    """Send nothing more to MLflow; its run stays active. Without `autolog` it does nothing."""
    monitor.watchers[:] = [each for each in monitor.watchers if not isinstance(each, _Run)]
    parameter.told_of_saving[:] = [
        each for each in parameter.told_of_saving if not isinstance(getattr(each, "__self__", None), _Run)
    ]
