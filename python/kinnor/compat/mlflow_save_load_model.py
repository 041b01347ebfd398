"""Saving and loading of models with MLflow, under NNabla's names. Needs the extra `mlflow`.

Files are copied without a look at their contents.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import ArgumentError, CallError, __version__
from ..files.packages import needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    PathLike = str | os.PathLike[str]

__all__ = [
    "get_default_conda_env",
    "get_default_pip_requirements",
    "get_runid_by_name",
    "load_model",
    "log_model",
    "save_model",
    "unique_run_name",
]

FLAVOR = "nnabla"
"""The name of the flavor, the same as NNabla's."""
DATA = "model"
"""The folder in a model that holds its data."""
CODE = "code"
"""The folder in a model that holds copies of the program's code."""
PARTS = {"nnp": "nnp_files", "checkpoint": "checkpoint_files", "extra_files": "extra_files"}
"""Folders of a model, by the argument whose files they hold."""


def mlflow(op: str) -> Any:
    """The package `mlflow`. Raises ImportError if it is not installed."""
    return needed(op, "mlflow", "MLflow", "mlflow")


def get_default_pip_requirements() -> list[str]:
    """Default requirements of a model for pip: this version of Kinnor."""
    return [f"kinnor=={__version__}"]


def get_default_conda_env() -> dict[str, Any]:
    """Default Conda environment of a model, with the requirements of `get_default_pip_requirements`."""
    return conda_env_of(get_default_pip_requirements())


def conda_env_of(requirements: Sequence[str]) -> dict[str, Any]:
    """A Conda environment with this version of Python and the given packages."""
    pip = {"pip": ["mlflow-skinny", *requirements]}
    dependencies = [f"python={platform.python_version()}", "pip", pip]
    return {"name": "mlflow-env", "channels": ["conda-forge"], "dependencies": dependencies}


def log_model(
    nnabla_model_name: str,
    path: str,
    nnp: Sequence[str] | None = None,
    checkpoint: Sequence[str] | None = None,
    config_file: PathLike | None = None,
    extra_files: Sequence[str] | None = None,
    conda_env: dict[str, Any] | None = None,
    code_paths: Sequence[PathLike] | None = None,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: Sequence[str] | None = None,
    extra_pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Any:
    """Log a model to MLflow's active run. Starts a run if none is active.

    Args:
        nnabla_model_name: Name of the file with the model, such as `model.nnp` or `params.h5`, in the folder `path`.
        path: Relative path of that folder; the model has the same path among the artifacts of the run.
        nnp: Paths or addresses of `.nnp` files, as a list. This and the following are arguments of `save_model`.
        checkpoint: Paths or addresses of checkpoints.
        config_file: Path of a settings file.
        extra_files: Paths or addresses of other files.
        conda_env: A Conda environment.
        code_paths: Files and folders with Python code.
        signature: MLflow's `ModelSignature`.
        input_example: Must be None.
        pip_requirements: Requirements for pip.
        extra_pip_requirements: Further requirements for pip.
        metadata: Metadata of the model.

    Returns:
        MLflow's `ModelInfo`.

    Raises:
        ImportError: If MLflow is not installed.
        CallError: If an argument has the wrong type.
        ArgumentError: If `input_example` is given.
        OSError: If a file is missing or cannot be written.
        MlflowException: If MLflow refuses the model.
    """
    package = mlflow("log_model")
    for name, value in (("nnabla_model_name", nnabla_model_name), ("path", path)):
        if not isinstance(value, str):
            raise CallError(f"log_model: expected `{name}` to be a string, got {type(value).__name__}")
    if not (Path(path) / nnabla_model_name).is_file():
        raise FileNotFoundError(f"log_model: expected a file {Path(path) / nnabla_model_name}, got none")
    models = needed("log_model", "mlflow.models.model", "MLflow", "mlflow")
    with tempfile.TemporaryDirectory() as folder:
        model = models.Model(artifact_path=path)
        target = Path(folder) / "model"
        save_model(nnabla_model_name, target, nnp, checkpoint, config_file, extra_files, conda_env, code_paths, model,
                   signature, input_example, pip_requirements, extra_pip_requirements, metadata)  # fmt: skip
        run = package.active_run() or package.start_run()
        model.run_id = run.info.run_id
        model.save(os.fspath(target / "MLmodel"))
        package.log_artifacts(os.fspath(target), path)
    return model.get_model_info()


def save_model(
    nnabla_model_name: PathLike,
    path: PathLike,
    nnp: Sequence[str] | None = None,
    checkpoint: Sequence[str] | None = None,
    config_file: PathLike | None = None,
    extra_files: Sequence[str] | None = None,
    conda_env: dict[str, Any] | None = None,
    code_paths: Sequence[PathLike] | None = None,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
    pip_requirements: Sequence[str] | None = None,
    extra_pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a model to a folder in MLflow's format.

    The folder gets the file `MLmodel`, the model in `model`, and other files in `nnp_files`, `checkpoint_files` and
    `extra_files`. Requirements are in `requirements.txt`, `conda.yaml` and `python_env.yaml`.

    Args:
        nnabla_model_name: Path of the file with the model, relative to the `artifact_path` of `mlflow_model`, if there
            is one.
        path: Path of the folder, which is created.
        nnp: Paths or addresses of `.nnp` files, as a list.
        checkpoint: Paths or addresses of checkpoints, as a list.
        config_file: Path of a settings file.
        extra_files: Paths or addresses of other files, as a list.
        conda_env: A Conda environment, instead of one with the requirements below.
        code_paths: Files and folders with Python code. `load_model` makes them importable.
        mlflow_model: MLflow's `Model` that gets the description; by default a new one.
        signature: MLflow's `ModelSignature`.
        input_example: Must be None.
        pip_requirements: Requirements for pip; by default this version of Kinnor.
        extra_pip_requirements: Further requirements for pip.
        metadata: Metadata of the model.

    Raises:
        ImportError: If MLflow is not installed.
        CallError: If `nnp`, `checkpoint` or `extra_files` is not a list, or a path is not a path.
        ArgumentError: If `input_example` is given, or both `conda_env` and requirements.
        OSError: If a file is missing or cannot be written, or if the folder holds a model already.
        MlflowException: If a file cannot be fetched.
    """
    package = mlflow("save_model")
    if input_example is not None:
        raise ArgumentError(f"save_model: expected `input_example` to be None, got {type(input_example).__name__}")
    if conda_env is not None and (pip_requirements is not None or extra_pip_requirements is not None):
        raise ArgumentError("save_model: expected `conda_env` or requirements, got both")
    lists = {"nnp": nnp, "checkpoint": checkpoint, "extra_files": extra_files}
    for name, files in lists.items():
        if files is not None and not isinstance(files, list):
            raise CallError(f"save_model: expected `{name}` to be a list, got {type(files).__name__}")
    for name, place in (("nnabla_model_name", nnabla_model_name), ("path", path)):
        if not isinstance(place, (str, os.PathLike)):
            raise CallError(f"save_model: expected `{name}` to be a path, got {type(place).__name__}")
    yaml = needed("save_model", "yaml", "MLflow", "mlflow")
    models = needed("save_model", "mlflow.models.model", "MLflow", "mlflow")
    model = models.Model() if mlflow_model is None else mlflow_model
    source, target = Path(getattr(model, "artifact_path", None) or "") / nnabla_model_name, Path(path)
    for file in (source, *([Path(config_file)] if config_file else [])):
        if not file.is_file():
            raise FileNotFoundError(f"save_model: expected a file {file}, got none")
    (target / DATA).mkdir(parents=True)
    shutil.copy(source, target / DATA)
    if config_file:
        shutil.copy(config_file, target)
    said: dict[str, Any] = {"code": CODE if code_paths else None}
    for each in code_paths or ():
        into = target / CODE / Path(each).name
        shutil.copytree(each, into) if Path(each).is_dir() else copied(each, into)
    for name, files in lists.items():
        for address in files or ():
            fetched = package.artifacts.download_artifacts(artifact_uri=os.fspath(address))
            copied(fetched, target / PARTS[name] / Path(fetched).name)
            said.setdefault(PARTS[name], []).append({"path": f"{PARTS[name]}/{Path(fetched).name}"})
    for name, value in (("signature", signature or None), ("metadata", metadata)):
        if value is not None:
            setattr(model, name, value)
    model.add_flavor(FLAVOR, model_data=DATA, nnabla_version=__version__, **said)
    model.save(os.fspath(target / "MLmodel"))
    own = get_default_pip_requirements() if pip_requirements is None else pip_requirements
    requirements = [*own, *(extra_pip_requirements or ())]
    env = {"python": platform.python_version(), "build_dependencies": ["pip"],
           "dependencies": ["-r requirements.txt"]}  # fmt: skip
    for name, content in (("conda.yaml", conda_env or conda_env_of(requirements)), ("python_env.yaml", env)):
        (target / name).write_text(yaml.safe_dump(content, sort_keys=False))
    (target / "requirements.txt").write_text("".join(f"{each}\n" for each in requirements))


def copied(file: PathLike, into: Path) -> None:
    """Copies a file to the path `into`, and makes its folder."""
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, into)


def load_model(model_uri: str, dst_path: PathLike | None = None, **kwargs: Any) -> str | list[str]:
    """Fetch a model that `log_model` or `save_model` has written, and make its code paths importable.

    Args:
        model_uri: Path of its folder, or an address such as `runs:/<id of the run>/<path>`.
        dst_path: Path of the folder to fetch into; by default a folder that MLflow chooses.
        **kwargs: `model`, the requested part: "model" (the default, also for None), "nnp", "checkpoint", or "MLmodel"
            for the folder.

    Returns:
        Path of the file with the model, or of the folder; for "nnp" and "checkpoint" a list of paths.

    Raises:
        ImportError: If MLflow is not installed.
        CallError: If `model_uri` is not a string, or another keyword than `model` is given.
        ArgumentError: If `model` has another value, or the model has no such files.
        OSError: If the file `MLmodel` is missing.
        MlflowException: If the folder or address does not exist.
    """
    package = mlflow("load_model")
    if not isinstance(model_uri, (str, os.PathLike)):
        raise CallError(f"load_model: expected `model_uri` to be a string, got {type(model_uri).__name__}")
    if other := kwargs.keys() - {"model"}:
        raise CallError(f"load_model: expected no keyword but `model`, got {', '.join(sorted(other))}")
    wanted = "model" if kwargs.get("model") is None else kwargs["model"]
    if wanted not in ("model", "nnp", "checkpoint", "MLmodel"):
        raise ArgumentError(
            f"load_model: expected `model` to be 'model', 'nnp', 'checkpoint' or 'MLmodel', got {wanted!r}"
        )
    yaml = needed("load_model", "yaml", "MLflow", "mlflow")
    into = None if dst_path is None else os.fspath(dst_path)
    folder = Path(package.artifacts.download_artifacts(artifact_uri=os.fspath(model_uri), dst_path=into))
    flavors: dict[str, Any] = yaml.safe_load((folder / "MLmodel").read_text())["flavors"]
    if FLAVOR not in flavors:
        raise ArgumentError(f"load_model: expected a model of the flavor {FLAVOR}, got one of {', '.join(flavors)}")
    said = flavors[FLAVOR]
    code = os.fspath(folder / said["code"]) if said.get("code") else None
    if code and code not in sys.path:
        sys.path.insert(0, code)
    if wanted == "MLmodel":
        return os.fspath(folder)
    if wanted == "model":
        return os.fspath(next(folder.joinpath(str(said["model_data"])).iterdir()))
    files = [os.fspath(folder / each["path"]) for each in said.get(PARTS[wanted], ())]
    if not files:
        raise ArgumentError(f"load_model: expected a model with files of `{wanted}`, got one without")
    return files


def runs_of(package: Any, experiment_name: str | None = None) -> list[Any]:
    """All runs of an experiment, newest first; by default of the active experiment."""
    names = None if experiment_name is None else [experiment_name]
    found: list[Any] = package.search_runs(experiment_names=names, output_format="list")
    return found


def get_runid_by_name(run_name: str, experiment_name: str | None = None) -> str | None:
    """The id of the newest run with a name.

    Args:
        run_name: The name.
        experiment_name: Name of the experiment; by default the active one.

    Returns:
        The id, or None if no run has the name.

    Raises:
        ImportError: If MLflow is not installed.
        CallError: If a name is not a string.
    """
    package = mlflow("get_runid_by_name")
    for name, value in (("run_name", run_name), ("experiment_name", experiment_name)):
        if not isinstance(value, str) and (name == "run_name" or value is not None):
            raise CallError(f"get_runid_by_name: expected `{name}` to be a string, got {type(value).__name__}")
    ids = (run.info.run_id for run in runs_of(package, experiment_name) if run.info.run_name == run_name)
    return next(ids, None)


def unique_run_name() -> None:
    """Make all later calls of `mlflow.start_run` choose unique names: `name-1` if a run `name` exists.

    Raises:
        ImportError: If MLflow is not installed.
    """
    package = mlflow("unique_run_name")
    own = package.start_run
    if hasattr(own, "gives_unique_names"):
        return

    def start_run(run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None,
                  *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        """Starts a run. Appends a number to a run name that is taken."""
        if run_name is not None and run_id is None:
            ids = None if experiment_id is None else [experiment_id]
            runs = package.search_runs(experiment_ids=ids, output_format="list")
            taken, wanted, n = {run.info.run_name for run in runs}, run_name, 0
            while run_name in taken:
                n += 1
                run_name = f"{wanted}-{n}"
        return own(run_id, experiment_id, run_name, *args, **kwargs)

    start_run.gives_unique_names = True  # type: ignore[attr-defined]
    package.start_run = start_run
