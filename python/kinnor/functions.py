"""Functions: each adds an operation to the graph of its input variables, or computes it eagerly for NdArrays.

Single operations are declared in `src/ops/` and generated from the declaration. `functions.pyi` lists all functions.
"""

from typing import NoReturn

from . import _core
from ._core import PythonFunction
from ._python_functions import attention, composed, contraction, detection, fused, quantization
from ._suggest import absence

__all__ = ["PythonFunction"]

for _name in sorted(vars(_core.functions)):
    if not _name.startswith("_"):
        globals()[_name] = getattr(_core.functions, _name)
        __all__ += [_name]

for _source in (attention, composed, contraction, detection, fused, quantization):
    for _name in _source.__all__:
        globals()[_name] = getattr(_source, _name)
        globals()[_name].__module__ = __name__
        __all__ += [_name]

__all__ = sorted(set(__all__))


def __getattr__(name: str) -> NoReturn:
    """Raises AttributeError with a hint at a similar name."""
    raise AttributeError(absence(f"{__name__}.{name}", __all__))
