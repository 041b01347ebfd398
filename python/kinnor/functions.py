"""Functions: each connects an operation to variables, or computes it at once where an NdArray is among its inputs.

Those that are one operation are declared in `src/ops/` and made from the declaration; `functions.pyi` lists them.
"""

from . import _core
from ._core import PythonFunction
from ._python_functions import attention, composed, contraction, fused, quantization

__all__ = ["PythonFunction"]

for _name in sorted(vars(_core.functions)):
    if not _name.startswith("_"):
        globals()[_name] = getattr(_core.functions, _name)
        __all__ += [_name]

for _source in (attention, composed, contraction, fused, quantization):
    for _name in _source.__all__:
        globals()[_name] = getattr(_source, _name)
        globals()[_name].__module__ = __name__
        __all__ += [_name]

__all__ = sorted(set(__all__))
