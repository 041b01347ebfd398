"""Attributes of other libraries' arrays: reading one raises an error that says what to write instead."""

from __future__ import annotations

from typing import Any, NoReturn

from ._core import NdArray, Variable

__all__ = ["ARRAY", "VARIABLE", "attach"]

VARIABLE = [
    "abs", "add_", "argmax", "argmin", "argsort", "bfloat16", "bmm", "bool", "chunk", "clamp", "clip", "clone",
    "contiguous", "copy_", "cpu", "cuda", "cumsum", "detach_", "device", "dim", "div_", "double", "eq", "exp",
    "expand", "expand_as", "fill_", "flatten", "float", "gather", "ge", "gt", "half", "index_select", "int",
    "is_cuda", "le", "log", "log_softmax", "long", "lt", "masked_fill", "matmul", "mm", "mul", "mul_",
    "ndimension", "ne", "nelement", "norm", "numel", "permute", "pow", "prod", "relu", "repeat", "sigmoid",
    "softmax", "sort", "split", "sqrt", "square", "squeeze", "std", "sub_", "swapaxes", "t", "tanh", "to",
    "tolist", "topk", "transpose", "type", "unbind", "unsqueeze", "var", "view", "view_as", "zero_",
]  # fmt: skip
"""Attributes that variables lack. `_foreign_names.VARIABLE` says what to write."""

ARRAY = ["add_", "clone", "copy_", "cpu", "cuda", "d", "detach", "fill_", "mul_", "norm", "to", "tolist", "zero_"]
"""Attributes that arrays lack. `_foreign_names.ARRAY` says what to write."""


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
    """Puts the descriptors into the core classes. The package calls it once, on import."""
    for kind, names in ((Variable, VARIABLE), (NdArray, ARRAY)):
        for name in names:
            setattr(kind, name, _Absent(name))
        setattr(kind, "__dir__", _listed)  # noqa: B010 - the stubs do not list it.


def _listed(self: Any) -> list[str]:
    """The names of the attributes that are present."""
    absent = {
        name
        for name in (VARIABLE if isinstance(self, Variable) else ARRAY)
        if type(next(vars(each)[name] for each in type(self).__mro__ if name in vars(each))) is _Absent
    }
    return [name for name in object.__dir__(self) if name not in absent]
