"""Records of runs in MLflow, read back with MLflow's client."""

import io
import sys

import mlflow
import numpy as np
import pytest

import kinnor as nn
from kinnor.autolog import autolog, stop_autolog
from kinnor.monitor import Monitor, MonitorImage, MonitorImageTile, MonitorSeries, MonitorTimeElapsed


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Returns a client of a temporary MLflow store."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield mlflow.MlflowClient()
    stop_autolog()
    mlflow.end_run()
    mlflow.set_tracking_uri(before)


def curve(client, run, name):
    """Returns the (step, value) pairs of a metric."""
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]


def files(client, run, name):
    """Returns the file names of the artifacts of a run in a folder."""
    return [
        each.path.rpartition("/")[2]
        for each in client.list_artifacts(run.info.run_id, f"runs_{run.info.run_id}/{name}")
    ]


def test_monitors_in_a_run(client, tmp_path):
    """Series, times and images of monitors are recorded in the active MLflow run."""
    monitor = Monitor(tmp_path / "here")
    images = np.random.default_rng(0).random((2, 3, 4, 4))
    autolog()
    autolog()  # a second call changes nothing
    with mlflow.start_run() as run:
        series = MonitorSeries("training loss", interval=2, verbose=False)
        timer = MonitorTimeElapsed("time", monitor, interval=2, verbose=False)
        shown = MonitorImage("made up", monitor, interval=2, verbose=False)
        tiles = MonitorImageTile("sheet", monitor, interval=2, verbose=False)
        for i in range(4):
            series.add(i, i * i)
            timer.add(i)
            shown.add(i, images)
            tiles.add(i, images)
        nn.save_parameters(tmp_path / "no.h5", {})
        stop_autolog()
        series.add(5, 1000)
    assert curve(client, run, "training loss") == [(1, 0.5), (3, 6.5)]
    lines = np.loadtxt(tmp_path / "here/time.timer.txt")
    assert curve(client, run, "time") == [(1, pytest.approx(lines[0, 1])), (3, pytest.approx(lines[1, 1]))]
    assert files(client, run, "sheet") == ["000000.png", "000001.png", "000003.png"]
    assert files(client, run, "made up") == sorted(f"{i:06d}-{n:03d}.png" for i in (0, 1, 3) for n in (0, 1))
    assert files(client, run, "parameters") == []


def test_parameters(client, tmp_path):
    """Parameters saved to a path within a run become files of that run."""
    autolog(with_save_parameters=True)
    w = nn.Variable.from_numpy_array(np.arange(3, dtype=np.float32))
    with mlflow.start_run() as run:
        nn.save_parameters(tmp_path / "w.safetensors", {"w": w})
        nn.save_parameters(io.BytesIO(), {"w": w}, extension=".safetensors")
        stop_autolog()
        nn.save_parameters(tmp_path / "later.safetensors", {"w": w})
    assert files(client, run, "parameters") == ["w.safetensors"]
    got = client.download_artifacts(run.info.run_id, f"runs_{run.info.run_id}/parameters/w.safetensors")
    with nn.parameter_scope("", {}):
        nn.load_parameters(got)
        np.testing.assert_array_equal(nn.get_parameters(grad_only=False)["w"].d, [0, 1, 2])


def test_a_run_is_started_if_there_is_none(client, tmp_path):
    autolog()
    MonitorImageTile("sheet", Monitor(tmp_path / "here"), verbose=False).add(0, np.ones((1, 1, 2, 2)))
    assert files(client, mlflow.active_run(), "sheet") == ["000000.png"]


def test_refused(monkeypatch):
    """A wrong argument and a missing package are refused."""
    stop_autolog()
    with pytest.raises(TypeError, match="autolog: expected `with_save_parameters`"):
        autolog("yes")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"autolog: .* pip install 'kinnor\[mlflow\]'"):
        autolog()
