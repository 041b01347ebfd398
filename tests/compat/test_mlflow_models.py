"""Models saved to MLflow and loaded again, with NNabla's names and with MLflow's client."""

import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
import yaml

import kinnor as nn
from kinnor import mlflow_save_load_model as models


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Returns a client of a temporary MLflow store, and restores MLflow's state after the test."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlflow, "start_run", mlflow.start_run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield mlflow.MlflowClient()
    mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.fixture
def trained(tmp_path):
    """Returns a folder with a saved model, and its parameters."""
    parameters = {"w": nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3), need_grad=True)}
    (tmp_path / "net").mkdir()
    for name in ("params.h5", "second.h5"):
        nn.save_parameters(tmp_path / "net" / name, parameters)
    (tmp_path / "net/settings.txt").write_text("rate 0.1\n")
    (tmp_path / "own_code_of_a_model.py").write_text("SAID = 7\n")
    return parameters


def test_a_model_saved_in_a_run_is_loaded_again(client, trained, tmp_path):
    with mlflow.start_run(run_name="first") as run:
        info = models.log_model(
            "params.h5",
            "net",
            nnp=["net/second.h5"],
            checkpoint=["net/second.h5", "net/params.h5"],
            config_file="net/settings.txt",
            extra_files=["net/settings.txt"],
            code_paths=["own_code_of_a_model.py"],
            extra_pip_requirements=["h5py"],
            metadata={"of": "a test"},
        )
    listed = {file.path for file in client.list_artifacts(run.info.run_id, "net")}
    assert {"net/MLmodel", "net/model", "net/settings.txt", "net/requirements.txt", "net/conda.yaml"} <= listed
    assert info.run_id == run.info.run_id and "nnabla" in info.flavors
    uri = f"runs:/{models.get_runid_by_name('first')}/net"
    found = models.load_model(uri, dst_path=tmp_path)
    assert Path(found).name == "params.h5" == Path(models.load_model(uri, model=None)).name
    with nn.parameter_scope("", {}):
        nn.load_parameters(found)
        np.testing.assert_array_equal(nn.get_parameters()["w"].d, trained["w"].d)
    assert __import__("own_code_of_a_model").SAID == 7
    assert [Path(file).name for file in models.load_model(uri, model="nnp")] == ["second.h5"]
    assert [Path(file).name for file in models.load_model(uri, model="checkpoint")] == ["second.h5", "params.h5"]
    folder = Path(models.load_model(uri, model="MLmodel"))
    assert (folder / "requirements.txt").read_text() == f"kinnor=={nn.__version__}\nh5py\n"
    read = yaml.safe_load((folder / "MLmodel").read_text())
    assert read["metadata"] == {"of": "a test"} and read["flavors"]["nnabla"]["model_data"] == "model"
    assert (folder / "settings.txt").read_text() == (folder / "extra_files/settings.txt").read_text() == "rate 0.1\n"


def test_a_model_in_a_folder(client, trained, tmp_path):
    """A model is saved to a folder and loaded again. An existing folder is refused."""
    models.save_model("net/params.h5", tmp_path / "out", conda_env={"name": "mine"})
    assert Path(models.load_model(str(tmp_path / "out"))).read_bytes() == Path("net/params.h5").read_bytes()
    assert yaml.safe_load((tmp_path / "out/conda.yaml").read_text()) == {"name": "mine"}
    with pytest.raises(FileExistsError):
        models.save_model("net/params.h5", tmp_path / "out")
    assert models.get_default_conda_env()["dependencies"][-1]["pip"][-1] == models.get_default_pip_requirements()[0]


def test_runs_get_names_of_their_own(client):
    """`unique_run_name` makes repeated names of runs unique with a number."""
    models.unique_run_name()
    models.unique_run_name()
    for _ in range(3):
        with mlflow.start_run(run_name="net"):
            pass
    with mlflow.start_run():  # with a generated name
        pass
    names = {run.info.run_name for run in mlflow.search_runs(output_format="list")}
    assert {"net", "net-1", "net-2"} < names and len(names) == 4
    assert models.get_runid_by_name("net-2") and models.get_runid_by_name("net-3") is None
    with mlflow.start_run(run_name="elsewhere", experiment_id=mlflow.create_experiment("other")) as run:
        pass
    assert models.get_runid_by_name("elsewhere") is None
    assert models.get_runid_by_name("elsewhere", "other") == run.info.run_id


def test_refused_arguments(client, trained, tmp_path):
    """`log_model` and `save_model` refuse wrong arguments and write nothing."""
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match=r"log_model: expected a file net/none.h5, got none"):
        models.log_model("none.h5", "net")
    assert mlflow.active_run() is None
    with pytest.raises(nn.CallError, match="save_model: expected `nnp` to be a list, got str"):
        models.save_model("net/params.h5", out, nnp="net/second.h5")
    with pytest.raises(nn.ArgumentError, match="expected `input_example` to be None, got int"):
        models.save_model("net/params.h5", out, input_example=1)
    with pytest.raises(nn.ArgumentError, match="expected `conda_env` or requirements, got both"):
        models.save_model("net/params.h5", out, conda_env={}, pip_requirements=["x"])
    assert not out.exists()
    with pytest.raises(mlflow.MlflowException, match="out"):
        models.load_model(str(out))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="MLmodel"):
        models.load_model(str(tmp_path / "empty"))
    models.save_model("net/params.h5", out)
    with pytest.raises(nn.ArgumentError, match="expected a model with files of `nnp`, got one without"):
        models.load_model(str(out), model="nnp")
    with pytest.raises(nn.ArgumentError, match="got 'weights'"):
        models.load_model(str(out), model="weights")
    with pytest.raises(nn.CallError, match="expected no keyword but `model`, got kind"):
        models.load_model(str(out), kind="nnp")
    with pytest.raises(nn.CallError, match="expected `run_name` to be a string, got int"):
        models.get_runid_by_name(3)
