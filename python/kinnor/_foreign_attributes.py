"""Attributes of other libraries' arrays: reading one raises an error that says what to write instead."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from ._core import CallError, NdArray, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ARRAY", "VARIABLE", "attach"]

VARIABLE = [
    "H", "abs", "add", "add_", "addmm", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "baddbmm",
    "bfloat16", "bmm", "bool", "ceil", "chunk", "clamp", "clamp_", "clamp_max", "clamp_min", "clip", "clone",
    "contiguous", "copy", "copy_", "cos", "cpu", "cuda", "cumsum", "data_ptr", "detach_", "device", "diag", "dim",
    "div", "div_", "dot", "double", "element_size", "eq", "equal", "exp", "expand", "expand_as", "fill_", "flatten",
    "flip", "float", "floor", "gather", "ge", "gt", "half", "index_select", "int", "is_contiguous", "is_cuda",
    "isnan", "le", "lerp", "log", "log_softmax", "logical_not", "logsumexp", "long", "lt", "mT", "masked_fill",
    "masked_select", "matmul", "median", "mm", "movedim", "mul", "mul_", "narrow", "nbytes", "ndimension", "ne",
    "neg", "nelement", "new_ones", "new_tensor", "new_zeros", "nonzero", "norm", "normal_", "numel", "permute",
    "pow", "prod", "ravel", "reciprocal", "relu", "repeat", "roll", "round", "rsqrt", "scatter", "scatter_",
    "select", "share_memory_", "sigmoid", "sign", "sin", "softmax", "sort", "split", "sqrt", "square", "squeeze",
    "std", "storage", "sub", "sub_", "swapaxes", "t", "tanh", "tile", "to", "tolist", "topk", "transpose", "tril",
    "triu", "type", "unbind", "unfold", "uniform_", "unsqueeze", "var", "view", "view_as", "zero_",
]  # fmt: skip
"""Attributes that variables lack. `_foreign_names.VARIABLE` says what to write."""

ARRAY = [
    "abs", "add_", "clip", "clone", "copy_", "cpu", "cuda", "d", "detach", "device", "dim", "fill_", "flatten",
    "float", "half", "isnan", "mul_", "norm", "numel", "requires_grad", "sqrt", "square", "to", "tolist",
    "zero_",
]  # fmt: skip
"""Attributes that arrays lack. `_foreign_names.ARRAY` says what to write."""


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


class _Absent:
    """A descriptor that raises AttributeError, so that `hasattr` is False.

    Unlike `__getattr__` it leaves the access to other attributes as fast as it is.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, holder: Any, kind: type | None = None) -> NoReturn:
        """Raises AttributeError with the text to write in Kinnor."""
        from . import _foreign_names  # On a mistake only, not on import.

        is_array = issubclass(type(holder) if kind is None else kind, NdArray)
        text = (_foreign_names.ARRAY if is_array else _foreign_names.VARIABLE)[self.name]
        whole = f"{('NdArray' if is_array else 'Variable')!r} object has no attribute {self.name!r}; write {text}"
        raise AttributeError(whole, name=self.name, obj=holder)


def attach() -> None:
    """Puts the descriptors and conversions into the core classes. The package calls it once, on import."""
    for kind, names in ((Variable, VARIABLE), (NdArray, ARRAY)):
        for name in names:
            setattr(kind, name, _Absent(name))
        for method in (_listed, _int, _round, _formatted, _abs):
            setattr(kind, _SPECIAL[method.__name__], method)
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


_SPECIAL = {
    "_abs": "__abs__",
    "_formatted": "__format__",
    "_int": "__int__",
    "_listed": "__dir__",
    "_round": "__round__",
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
