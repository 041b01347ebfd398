"""Functions: each connects an operation to variables, or computes it at once where an NdArray is among its inputs.

Those that are one operation are declared in `src/ops/` and made from the declaration; `functions.pyi` lists them.
"""

from . import _core
from ._core import PythonFunction
from ._python_functions import composed

__all__ = ["PythonFunction"]

for _source, _names in ((_core.functions, sorted(vars(_core.functions))), (composed, composed.__all__)):
    for _name in _names:
        if not _name.startswith("_"):
            globals()[_name] = getattr(_source, _name)
            __all__ += [_name]

for _name in composed.__all__:
    globals()[_name].__module__ = __name__

__all__ = sorted(set(__all__))
