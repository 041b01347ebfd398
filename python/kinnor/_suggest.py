"""What a misspelt name may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _missing

if TYPE_CHECKING:
    from collections.abc import Iterable

ELSEWHERE = {
    "bias": "with_bias",
    "dim": "axis",
    "dims": "axes",
    "in_features": "n_inmaps",
    "input": "x",
    "inp": "x",
    "kernel_size": "kernel",
    "keepdim": "keepdims",
    "lr": "alpha",
    "negative_slope": "alpha",
    "num_embeddings": "n_inputs",
    "out_channels": "outmaps",
    "out_features": "n_outmaps",
    "padding": "pad",
    "size": "shape",
    "strides": "stride",
}
"""Names that other libraries have for the same argument."""


INSTEAD = {
    "utils.audio_utils.pydub_utils": "soundfile does it, by kinnor.utils.audio_utils",
    "utils.cli.compare_with_cpu": "there is no other device to compare with",
    "utils.cli.uploader": "nothing is uploaded",
    "utils.image_utils.backend_events.cv2_backend": "Pillow and pypng are the backends: kinnor.utils.image_utils",
    "utils.image_utils.backend_events.dicom_backend": "Pillow and pypng are the backends, which do not read DICOM",
    "utils.nvml": "it asks NVIDIA's devices, and Kinnor runs on CPUs",
}
"""What there is in the place of a module of NNabla's, or why there is nothing."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is nearest to another one, or None if none is near.

    >>> nearest("sofmax", ["softmax", "sigmoid"])
    'softmax'
    >>> nearest("dim", ["x", "axis"])
    'axis'
    """
    import difflib  # On a mistake only, not on import.

    known = [other for other in known if not other.startswith("_")]
    if ELSEWHERE.get(name) in known:
        return ELSEWHERE[name]
    by_letters = {other.replace("_", "").lower(): other for other in known}
    plain = name.replace("_", "").lower()
    if plain in by_letters:
        return by_letters[plain]
    found = difflib.get_close_matches(plain, by_letters, 1, 0.7)
    return by_letters[found[0]] if found else None


def question(name: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of an error's message; empty if none is near.

    >>> question("sofmax", ["softmax", "sigmoid"])
    "; did you mean 'softmax'?"
    """
    found = nearest(name, known)
    return f"; did you mean '{found}'?" if found else ""


def absence(path: str, known: Iterable[str] = ()) -> str:
    """Why there is nothing under a dotted name, for an ImportError or an AttributeError.

    >>> absence("kinnor.functions.sofmax", ["softmax", "sigmoid"])
    "module 'kinnor.functions' has no attribute 'sofmax'; did you mean 'softmax'?"
    >>> absence("kinnor.functions.silu", ["selu", "swish"])
    "module 'kinnor.functions' has no attribute 'silu'; did you mean 'swish'?"
    """
    module, _, name = path.rpartition(".")
    of_nnabla = module.partition(".")[2]
    inside = f"{of_nnabla}.{name}".lstrip(".")
    there = any(inside == missing or inside.startswith(f"{missing}.") for missing in _missing.MODULES)
    if there or name in _missing.NAMES.get(of_nnabla, ()):
        told = f"module '{module}' has no attribute '{name}': NNabla has it and Kinnor has not, see {_missing.PAGE}"
        advice = next((why for place, why in INSTEAD.items() if f"{inside}.".startswith(f"{place}.")), None)
        return told if advice is None else f"{told}; {advice}"
    known = list(known)
    from ._foreign_names import instead  # On a mistake only, not on import.

    found = instead(of_nnabla, name)
    if found is None:
        return f"module '{module}' has no attribute '{name}'{question(name, known)}"
    advice = f"did you mean '{found}'?" if found in known else f"write {found}"
    return f"module '{module}' has no attribute '{name}'; {advice}"
