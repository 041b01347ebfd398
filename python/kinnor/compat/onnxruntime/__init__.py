"""ONNX Runtime's name for this library: importing this module makes `import onnxruntime` give Kinnor.

    python -m kinnor.compat.onnxruntime script.py     # runs a program; -m module and -c text work as well
    pytest -p kinnor.compat.onnxruntime               # runs tests

or `import kinnor.compat.onnxruntime` before the first `import onnxruntime`. Sessions compute on the CPU. Errors have
ONNX Runtime's names. Modules that Kinnor lacks, such as `onnxruntime.quantization`, cannot be imported, and the error
says so. `onnxruntime.__version__` is the version whose interface this is, and `onnxruntime.__kinnor__` Kinnor's own.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor.compat import _programs, names

from . import runtime
from .environment import VERSION

if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn

__all__ = ["STANDINS", "VERSION", "install"]

STANDINS = str(Path(__file__).parent / "_standins")
"""A folder with a module `onnxruntime` that imports this package."""

_RUNTIME = f"{__name__}.runtime"
"""The module with all names of the package, imported on first use."""
_PATHS = {
    "onnxruntime.backend": f"{__name__}.backend",
    "onnxruntime.backend.backend": f"{__name__}.backend",
    "onnxruntime.backend.backend_rep": f"{__name__}.backend",
    "onnxruntime.capi._pybind_state": _RUNTIME,
    "onnxruntime.capi.onnxruntime_inference_collection": _RUNTIME,
    "onnxruntime.capi.onnxruntime_pybind11_state": _RUNTIME,
}
"""ONNX Runtime's modules that are here, and the modules that they stand for."""


class Finder(MetaPathFinder):
    """Finds ONNX Runtime's modules by name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns how to load a module below `onnxruntime`, or says that Kinnor lacks it."""
        if not name.startswith("onnxruntime."):
            return None
        if name not in _PATHS:
            raise ModuleNotFoundError(f"module {name!r}: ONNX Runtime has it and Kinnor has not", name=name)
        return names.spec(name, _PATHS[name])


def _missing(name: str) -> NoReturn:
    """Raises AttributeError for a name that the package does not have."""
    raise AttributeError(f"module 'onnxruntime' of Kinnor has no attribute {name!r}; docs/onnx.md says what is missing")


def install() -> ModuleType:
    """Put `onnxruntime` into `sys.modules`, once.

    Returns:
        The module `onnxruntime`.

    Raises:
        ImportError: If ONNX Runtime itself was imported before.
    """
    present = sys.modules.get("onnxruntime")
    if present is not None:
        if getattr(present, "__kinnor__", None) is not None:
            return present
        raise ImportError(
            "kinnor.compat.onnxruntime: expected to be imported before onnxruntime, got it after ONNX Runtime itself"
        )
    found = _programs.package("onnxruntime", "Kinnor under the name of ONNX Runtime.")
    capi = _programs.package("onnxruntime.capi", "Modules under the names that ONNX Runtime gives them.")
    for module in (found, capi):
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=True)
    vars(found).update({name: getattr(runtime, name) for name in runtime.__all__})
    vars(found).update({"__file__": __file__, "__kinnor__": kinnor.__version__, "__version__": VERSION, "capi": capi})
    found.__getattr__ = _missing  # type: ignore[method-assign]
    sys.modules.update({"onnxruntime": found, "onnxruntime.capi": capi})
    sys.meta_path.insert(0, Finder())
    # Processes that `multiprocessing` spawns get this path, and find there what puts the name into place.
    sys.path.insert(min(1, len(sys.path)), STANDINS)
    return found


install()
