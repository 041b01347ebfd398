"""Error messages for unknown names: the nearest known name, or why NNabla's name is missing."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core, _missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_F = TypeVar("_F", bound="Callable[..., Any]")

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
"""Names of arguments in other libraries, and NNabla's names for the same arguments."""


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
    if ELSEWHERE.get(name) in known:
        return ELSEWHERE[name]
    by_letters = {other.replace("_", "").lower(): other for other in known}
    plain = name.replace("_", "").lower()
    if plain in by_letters:
        return by_letters[plain]
    found = difflib.get_close_matches(plain, by_letters, 1, 0.7)
    return by_letters[found[0]] if found else None


def question(name: str, known: Iterable[str]) -> str:
    """The end of an error message that proposes the nearest known name; empty if none is near.

    >>> question("sofmax", ["softmax", "sigmoid"])
    "; did you mean 'softmax'?"
    """
    found = nearest(name, known)
    return f"; did you mean '{found}'?" if found else ""


def explained(op: str, elsewhere: Mapping[str, str], surplus: str | None = None) -> Callable[[_F], _F]:
    """A decorator for functions with errors that lead from arguments of other libraries to their own arguments.

    Args:
        op: Name of the function, for errors.
        elsewhere: Arguments of other libraries, and for each the argument here, or text that says what to write.
        surplus: The arguments without a name, for an error about too many of them; by default Python raises it.

    Returns:
        The decorator. The functions raise CallError, which is a TypeError.

    >>> @explained("resize", {"dim": "axis"})
    ... def resize(x, axis=0):
    ...     return x
    >>> resize(3, dim=1)
    Traceback (most recent call last):
        ...
    kinnor.CallError: resize: expected (x, axis), got an argument 'dim'; did you mean 'axis'?
    """

    def decorated(function: _F) -> _F:
        """The function, behind a check of its arguments' names."""
        parameters = inspect.signature(function).parameters
        known = list(parameters)
        most = sum(each.kind is not inspect.Parameter.KEYWORD_ONLY for each in parameters.values())

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            """Checks the names and the number of arguments, and calls the function."""
            for name in kwargs:
                if name not in parameters:
                    expected = f"({', '.join(known)})" if len(known) <= 8 else "one of its arguments"
                    hint = advice(name, known, elsewhere)
                    raise _core.CallError(f"{op}: expected {expected}, got an argument {name!r}{hint}")
            if surplus is not None and len(args) > most:
                raise _core.CallError(f"{op}: expected {surplus}, got {len(args)} arguments without a name")
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorated


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


def absence(path: str, known: Iterable[str] = ()) -> str:
    """The message of an ImportError or AttributeError for a dotted name that does not exist.

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
