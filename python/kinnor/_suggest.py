"""Error messages for unknown names: the nearest known name, or why NNabla's name is missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import FrameType
    from typing import NoReturn

ELSEWHERE = {
    "attn_mask": "mask",
    "bias": "with_bias",
    "count_include_pad": "including_pad",
    "descending": "reverse",
    "dim": "axis",
    "dims": "axes",
    "dropout_p": "dropout",
    "epsilon": "eps",
    "filters": "outmaps",
    "groups": "group",
    "in_features": "n_inmaps",
    "input": "x",
    "inp": "x",
    "is_causal": "causal",
    "kernel_size": "kernel",
    "keepdim": "keepdims",
    "learning_rate": "alpha",
    "lr": "alpha",
    "momentum": "decay_rate",
    "negative_slope": "alpha",
    "num_classes": "shape",
    "num_embeddings": "n_inputs",
    "out_channels": "outmaps",
    "out_features": "n_outmaps",
    "padding": "pad",
    "pool_size": "kernel",
    "rate": "p",
    "requires_grad": "need_grad",
    "rho": "decay",
    "running_mean": "mean",
    "running_var": "variance",
    "scale_factor": "scale",
    "size": "shape",
    "strides": "stride",
    "units": "n_outmaps",
    "use_bias": "with_bias",
    "value": "constant_value",
}
"""Names of arguments in other libraries, and NNabla's names for the same arguments."""

OTHERWISE = {"learning_rate": "lr", "lr": "alpha", "rate": "drop_rate", "size": "output_size"}
"""Second names for the same, of functions that lack the first one."""


INSTEAD = {
    "utils.audio_utils.pydub_utils": "soundfile does it, by kinnor.utils.audio_utils",
    "utils.cli.compare_with_cpu": "there is no other device to compare with",
    "utils.cli.uploader": "nothing is uploaded",
    "utils.image_utils.backend_events.cv2_backend": "Pillow and pypng are the backends: kinnor.utils.image_utils",
    "utils.image_utils.backend_events.dicom_backend": "Pillow and pypng are the backends, which do not read DICOM",
    "utils.nvml": "it asks NVIDIA's devices, and Kinnor runs on CPUs",
}
"""Replacements of NNabla's missing modules, or the reasons why there is none."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to `name`, or None if none is similar.

    >>> nearest("sofmax", ["softmax", "sigmoid"])
    'softmax'
    >>> nearest("dim", ["x", "axis"])
    'axis'
    """
    import difflib  # Imported on a mistake only.

    known = [other for other in known if not other.startswith("_")]
    for names in (ELSEWHERE, OTHERWISE):
        if names.get(name) in known:
            return names[name]
    by_letters = {other.replace("_", "").lower(): other for other in known}
    plain = name.replace("_", "").lower()
    if plain in by_letters:
        return by_letters[plain]
    found = difflib.get_close_matches(plain, by_letters, 1, 0.7)
    return by_letters[found[0]] if found else None


def spelled(name: str, known: Iterable[str]) -> str:
    """The end of an error message that proposes the nearest known name; empty if none is near.

    >>> spelled("sofmax", ["softmax", "sigmoid"])
    "; did you mean 'softmax'?"
    """
    found = nearest(name, known)
    return f"; did you mean '{found}'?" if found else ""


def question(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown argument: the nearest argument, or what takes its place.

    >>> question("dim", ["x", "axis"])
    "; did you mean 'axis'?"
    >>> question("reduction", ["x0", "x1"])
    '; the result has one loss for each element; kinnor.functions.mean gives the mean'
    """
    from .compat.foreign_names import FUNCTION_ARGUMENTS  # On a mistake only, not on import.

    text = FUNCTION_ARGUMENTS.get(name)
    return spelled(name, known) or ("" if text is None else f"; {text}")


def advice(name: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    """The end of an error about an unknown argument.

    Args:
        name: The unknown argument.
        known: The arguments.
        elsewhere: Arguments of other libraries, and for each the argument here, or text that says what to write.
    """
    other = elsewhere.get(name)
    if other is None or (other.isidentifier() and other not in known):
        return question(name, known)
    return f"; did you mean {other!r}?" if other in known else f"; {other}"


def lacks(holder: object, name: str, table: str, kind: str | None = None) -> NoReturn:
    """Raises AttributeError for an attribute that an object lacks, with what to write instead.

    Args:
        holder: The object.
        name: The attribute.
        table: The table of `_foreign_names` that has attributes of other libraries' objects of this kind.
        kind: The kind of object for the error; the name of its class by default.
    """
    from .compat import foreign_names  # On a mistake only, not on import.

    text = getattr(foreign_names, table).get(name)
    hint = "" if text is None else f"; write {text}"
    told = f"{kind or type(holder).__name__!r} object has no attribute {name!r}{hint}"
    raise AttributeError(told, name=name, obj=holder)


def absence(path: str, known: Iterable[str] = ()) -> str:
    """The message of an ImportError or AttributeError for a dotted name that does not exist.

    >>> absence("kinnor.functions.sofmax", ["softmax", "sigmoid"])
    "module 'kinnor.functions' has no attribute 'sofmax'; did you mean 'softmax'?"
    >>> absence("kinnor.functions.silu", ["selu", "swish"])
    "module 'kinnor.functions' has no attribute 'silu'; did you mean 'swish'?"
    """
    from .compat import missing  # On a mistake only, not on import.

    module, _, name = path.rpartition(".")
    of_nnabla = module.partition(".")[2]
    inside = f"{of_nnabla}.{name}".lstrip(".")
    there = any(inside == each or inside.startswith(f"{each}.") for each in missing.MODULES)
    if there or name in missing.NAMES.get(of_nnabla, ()):
        told = f"module '{module}' has no attribute '{name}': NNabla has it and Kinnor has not, see {missing.PAGE}"
        advice = next((why for place, why in INSTEAD.items() if f"{inside}.".startswith(f"{place}.")), None)
        return told if advice is None else f"{told}; {advice}"
    return f"module '{module}' has no attribute '{name}'{_proposal(of_nnabla, name, known)}"


def _proposal(module: str, name: str, known: Iterable[str]) -> str:
    """The end of an error about a name that a module lacks.

    Args:
        module: Path of the module within the package.
        name: The name.
        known: The names of the module.
    """
    from .compat.foreign_names import instead  # On a mistake only, not on import.

    known = list(known)
    found = instead(module, name)
    if found is None:
        return spelled(name, known)
    return f"; did you mean '{found}'?" if found in known else f"; write {found}"


def absent(path: str, known: Iterable[str] = ()) -> NoReturn:
    """Raises the error of a module's `__getattr__`: AttributeError, or ImportError if an import asks for the name.

    Python replaces the message of an AttributeError within `from module import name` by one without advice.

    Args:
        path: Dotted path of the missing name.
        known: The names of the module.
    """
    told = absence(path, known)
    if _imports_a_name(sys._getframe(2)):
        module, _, name = path.rpartition(".")
        advice = told.removeprefix(f"module '{module}' has no attribute '{name}'")
        raise ImportError(f"cannot import name '{name}' from '{module}'{advice}", name=module)
    raise AttributeError(told)


def _imports_a_name(frame: FrameType) -> bool:
    """True if the frame is at the instruction of `from module import name` that looks the name up."""
    from opcode import opmap  # On a mistake only, not on import.

    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def absent_module(path: str) -> None:
    """Raises ModuleNotFoundError for a module of another library, with the module or the name that takes its place.

    Args:
        path: Dotted path of a module that was not found. Nothing is raised if no other library has one of this name.
    """
    module, _, name = path.rpartition(".")
    from .compat.foreign_names import instead  # On a mistake only, not on import.

    inside = module.partition(".")[2]
    found = instead(inside, name)
    if found is not None:
        place = f"kinnor.{found}" if not inside and found.isidentifier() else found
        raise ModuleNotFoundError(f"No module named '{path}'; write {place}", name=path)
