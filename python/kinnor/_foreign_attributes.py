"""Habits of other libraries' arrays: attributes, operators and NumPy's functions. Errors say what to write instead."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from ._core import CallError, NdArray, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ARRAY", "VARIABLE", "Size", "attach"]

VARIABLE = [
    "H", "abs", "add", "add_", "addmm", "all", "amax", "amin", "any", "apply_", "argmax", "argmin", "argsort",
    "assign", "assign_add", "assign_sub", "baddbmm", "bfloat16", "bmm", "bool", "ceil", "chunk", "clamp", "clamp_",
    "clamp_max", "clamp_min", "clip", "clone", "contiguous", "copy", "copy_", "cos", "cpu", "cuda", "cumsum",
    "data_ptr", "detach_", "device", "diag", "dim", "div", "div_", "dot", "double", "element_size", "eq", "equal",
    "eval", "exp", "expand", "expand_as", "fill", "fill_", "flatten", "flip", "float", "floor", "from_numpy",
    "gather", "ge", "get_shape", "get_value", "gt", "half", "index_select", "int", "is_contiguous", "is_cuda",
    "isnan", "le", "lerp", "log", "log_softmax", "logical_not", "logsumexp", "long", "lt", "mT", "masked_fill",
    "masked_select", "matmul", "median", "mm", "movedim", "mul", "mul_", "narrow", "nbytes", "ndimension", "ne",
    "neg", "nelement", "new_ones", "new_tensor", "new_zeros", "nonzero", "norm", "normal_", "numel", "ones",
    "permute", "pow", "prod", "rand", "randn", "ravel", "reciprocal", "relu", "repeat", "roll", "round", "rsqrt",
    "scatter", "scatter_", "select", "set_value", "share_memory_", "sigmoid", "sign", "sin", "softmax", "sort",
    "split", "sqrt", "square", "squeeze", "std", "storage", "sub", "sub_", "swapaxes", "t", "tanh", "tile", "to",
    "tolist", "topk", "trainable", "transpose", "tril", "triu", "type", "type_as", "unbind", "unfold", "uniform_",
    "unsqueeze", "value", "var", "view", "view_as", "zero_", "zero_grad", "zeros",
]  # fmt: skip
"""Attributes that variables lack. `foreign_names.VARIABLE` says what to write."""

ARRAY = [
    "abs", "add_", "clip", "clone", "copy", "copy_", "cpu", "cuda", "d", "detach", "device", "dim", "fill_",
    "flatten", "float", "half", "isnan", "mul_", "norm", "numel", "requires_grad", "reshape", "sqrt", "square", "to",
    "tolist", "transpose", "zero_",
]  # fmt: skip
"""Attributes that arrays lack. `foreign_names.ARRAY` says what to write."""


ABSENT_OPERATORS = {
    "__and__": "&",
    "__floordiv__": "//",
    "__invert__": "~",
    "__mod__": "%",
    "__or__": "|",
    "__rand__": "&",
    "__rfloordiv__": "//",
    "__rmod__": "%",
    "__ror__": "|",
    "__rxor__": "^",
    "__xor__": "^",
}
"""Methods of operators that variables and arrays lack. `foreign_names.OPERATORS` says what to write."""

UFUNC_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "equal": ("__eq__", "__eq__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "multiply": ("__mul__", "__rmul__"),
    "not_equal": ("__ne__", "__ne__"),
    "power": ("__pow__", "__rpow__"),
    "subtract": ("__sub__", "__rsub__"),
}
"""NumPy's functions that its operators call, and the methods of these operators for the first and second operand."""

METHOD_ARGUMENTS = {
    "backward": {
        "create_graph": "kinnor.autodiff.backward(loss, create_graph=True)",
        "gradient": "write `grad`",
        "inputs": "kinnor.autodiff.grad(loss, [x]) returns gradients of chosen variables",
        "retain_graph": "leave it out: a graph is kept, unless clear_buffer=True",
    },
    "from_numpy_array": {
        "copy": "leave it out: values are copied",
        "device": "leave it out: arrays are in the memory of the CPU",
        "dtype": "numpy.asarray(values, dtype) has the type",
        "requires_grad": "did you mean 'need_grad'?",
    },
    "zero_grad": {"set_to_none": "leave it out: gradients are set to zero, and take no memory until they are read"},
}
"""Arguments of PyTorch's methods, and what to do instead."""


class Size(int):
    """A number of elements. A call, as of PyTorch's method `size`, says what to write."""

    __slots__ = ()

    def __call__(self, *axis: Any) -> NoReturn:
        """Raises CallError."""
        text = f"x.shape[{axis[0]}]" if axis else "x.shape"
        raise CallError(f"size: expected no call, it is the number of elements; write {text}")

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies and pickles are plain integers."""
        return int, (int(self),)


class _Absent(str):
    """A descriptor that raises AttributeError, so that `hasattr` is False. It is the name of the attribute.

    Unlike `__getattr__` it leaves the access to other attributes as fast as it is. As text, it is quick to make.
    """

    __slots__ = ()

    def __get__(self, holder: Any, kind: type | None = None) -> NoReturn:
        """Raises AttributeError with the text to write in Kinnor."""
        from .compat import foreign_names  # On a mistake only, not on import.

        name = str(self)
        is_array = issubclass(type(holder) if kind is None else kind, NdArray)
        text = (foreign_names.ARRAY if is_array else foreign_names.VARIABLE)[name]
        whole = f"{('NdArray' if is_array else 'Variable')!r} object has no attribute {name!r}; write {text}"
        raise AttributeError(whole, name=name, obj=holder)


def attach() -> None:
    """Puts the descriptors and conversions into the core classes. The package calls it once, on import."""
    for kind, names in ((Variable, VARIABLE), (NdArray, ARRAY)):
        for name in names:
            setattr(kind, name, _Absent(name))
        for method in (_listed, _int, _round, _formatted, _abs, _ufunc, _array_function):
            setattr(kind, _SPECIAL[method.__name__], method)
        for name in ABSENT_OPERATORS:
            setattr(kind, name, _absent_operator(name))
    method = _knowing("Variable.from_numpy_array", Variable.from_numpy_array)
    setattr(Variable, "from_numpy_array", staticmethod(method))  # noqa: B010 - a type checker sees the method itself.


def refuse(op: str, names: Iterable[str]) -> None:
    """Raise an error for unknown arguments of a method, which says what to write for arguments of PyTorch.

    Args:
        op: Name of the method, for errors.
        names: Names of the arguments.

    Raises:
        CallError: If there is a name.
    """
    known = METHOD_ARGUMENTS[op.rpartition(".")[2]]
    for name in names:
        advice = f"; {known[name]}" if name in known else ""
        raise CallError(f"{op}: got an argument {name!r}{advice}")


def _knowing(op: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose errors lead from arguments of PyTorch's method of this name to what to write here.

    Args:
        op: Name of the method, for errors.
        method: The method.
    """
    known = METHOD_ARGUMENTS[method.__name__]

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        """Calls the method after a check of the names of arguments."""
        if kwargs:
            refuse(op, [name for name in kwargs if name in known])
        return method(*args, **kwargs)

    return checked


def _int(self: Any) -> int:
    """The only element as an int."""
    return int(self.item())


def _round(self: Any, digits: int | None = None) -> float | int:
    """The only element, rounded."""
    rounded: float | int = round(self.item(), digits)
    return rounded


def _formatted(self: Any, form: str) -> str:
    """The only element in a format; the text of `str` without a format."""
    return format(self.item(), form) if form else str(self)


def _abs(self: Any) -> Any:
    """The absolute values of the elements."""
    return _core.functions.abs(self)


def _absent_operator(name: str) -> Callable[..., NoReturn]:
    """The method of an operator that raises CallError with what to write."""

    def refused(self: Any, *other: Any) -> NoReturn:
        """Raises CallError."""
        from .compat import foreign_names  # On a mistake only, not on import.

        kind = "NdArray" if isinstance(self, NdArray) else "Variable"
        text = foreign_names.OPERATORS[name.replace("__r", "__")]
        sign = ABSENT_OPERATORS[name]
        raise CallError(f"{kind}: expected an operator such as + - * / @ **, got {sign!r}; write {text}")

    refused.__name__ = name
    return refused


def _ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
    """NumPy's function of elements. `numpy.add` and others of operators are the operators; the rest raise an error."""
    own = (Variable, NdArray)
    is_in_place = out is not None and len(out) == 1 and out[0] is inputs[0]  # array += x
    if method == "__call__" and not named and (out is None or is_in_place) and ufunc.__name__ in UFUNC_OPERATORS:
        first, second = UFUNC_OPERATORS[ufunc.__name__]
        x, y = inputs
        found = getattr(x, first)(y) if isinstance(x, own) else getattr(y, second)(x)
        if found is not NotImplemented or first in ("__eq__", "__ne__"):
            return (first == "__ne__") if found is NotImplemented else found
    raise _numpy_error(self, ufunc.__name__, "UFUNCS")


def _array_function(self: Any, function: Any, types: Any, args: Any, named: Any) -> Any:
    """NumPy's function of arrays takes a variable as an array. Names of methods, such as `sum`, raise an error."""
    name = {"amax": "max", "amin": "min"}.get(function.__name__, function.__name__)
    if name in ("max", "mean", "min", "prod", "sum") and getattr(function, "__module__", None) == "numpy":
        raise _numpy_error(self, name, "REDUCTIONS")
    return function._implementation(*args, **named)


def _numpy_error(x: Any, name: str, table: str) -> CallError:
    """The error for NumPy's function of a variable or an array, with what to write."""
    from .compat import foreign_names  # On a mistake only, not on import.

    text = getattr(foreign_names, table).get(name)
    kind, values = ("NdArray", "x.data") if isinstance(x, NdArray) else ("Variable", "x.d")
    hint = f"numpy.{name}({values}) for an array" if text is None else f"{text}, or numpy.{name}({values}) for an array"
    return CallError(f"numpy.{name}: expected an array of NumPy, got {kind}; write {hint}")


_SPECIAL = {
    "_abs": "__abs__",
    "_array_function": "__array_function__",
    "_formatted": "__format__",
    "_int": "__int__",
    "_listed": "__dir__",
    "_round": "__round__",
    "_ufunc": "__array_ufunc__",
}
"""Names of the methods of the core classes that functions of this module become."""


def _listed(self: Any) -> list[str]:
    """The names of the attributes that are present."""
    absent = {
        name
        for name in (VARIABLE if isinstance(self, Variable) else ARRAY)
        if type(next(vars(each)[name] for each in type(self).__mro__ if name in vars(each))) is _Absent
    }
    return [name for name in object.__dir__(self) if name not in absent]
