"""Where files of models are expected."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["get_model_home", "get_model_url_base", "get_model_url_base_from_env"]


def get_model_home() -> str:
    """The folder that models are looked for in: `nnp_models` in NNabla's folder for data.

    That is `nnabla_data` in the home folder, or what the environment variable `NNABLA_DATA_HOME` says.

    Returns:
        The path of the folder, which need not be there.
    """
    home = os.environ.get("NNABLA_DATA_HOME")
    return str((Path(home) if home else Path.home() / "nnabla_data") / "nnp_models")


def get_model_url_base_from_env() -> str | None:
    """What the environment variable `NNABLA_MODELS_URL_BASE` says.

    Returns:
        An address, or None.
    """
    return os.environ.get("NNABLA_MODELS_URL_BASE")


def get_model_url_base() -> str:
    """Where NNabla publishes its models, for who gets them by hand.

    Returns:
        An address.
    """
    return get_model_url_base_from_env() or "https://nnabla.org/pretrained-models/nnp_models/"
