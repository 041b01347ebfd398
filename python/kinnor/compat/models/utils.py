"""Locations of model files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["get_model_home", "get_model_url_base", "get_model_url_base_from_env"]


def get_model_home() -> str:
    """The folder of model files: `nnp_models` in NNabla's data folder.

    NNabla's data folder is `nnabla_data` in the home folder, or the value of the environment variable
    `NNABLA_DATA_HOME`.

    Returns:
        The path of the folder, which may not exist.
    """
    home = os.environ.get("NNABLA_DATA_HOME")
    return str((Path(home) if home else Path.home() / "nnabla_data") / "nnp_models")


def get_model_url_base_from_env() -> str | None:
    """The value of the environment variable `NNABLA_MODELS_URL_BASE`.

    Returns:
        A URL, or None.
    """
    return os.environ.get("NNABLA_MODELS_URL_BASE")


def get_model_url_base() -> str:
    """The URL of NNabla's model files, for users who download them.

    Returns:
        A URL.
    """
    return get_model_url_base_from_env() or "https://nnabla.org/pretrained-models/nnp_models/"
