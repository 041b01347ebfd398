"""Sequences of tensors, and optional values.

The length of a sequence, and the presence of a value, are fixed while a graph is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._core import CallError, ShapeError, UnsupportedError, Variable
from .values import OnnxError, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Absent", "InputType", "Items", "counts", "entered", "input_type", "leaves", "parts"]


class Items(Value):
    """A sequence of tensors.

    Args:
        items: The tensors.
        dtype: The element type of an empty sequence.
    """

    def __init__(self, items: Iterable[Value], dtype: Any = np.float32) -> None:
        self.items = list(items)
        sources = frozenset[str]().union(*(item.sources for item in self.items))
        super().__init__(np.zeros(0, self.items[0].dtype if self.items else dtype), sources=sources)

    @property
    def known(self) -> bool:
        """True if all tensors are constants."""
        return all(item.known for item in self.items)

    @property
    def variable(self) -> Variable:
        """Raises OnnxError: a sequence is not a tensor."""
        raise OnnxError(f"expected a tensor, got a sequence of {len(self.items)}")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError: a sequence is not a tensor."""
        raise OnnxError(f"expected a tensor, got a sequence of {len(self.items)}")


class Absent(Value):
    """An optional value that is absent."""

    def __init__(self) -> None:
        super().__init__(np.zeros(0, np.float32))

    @property
    def variable(self) -> Variable:
        """Raises OnnxError: there is no value."""
        raise OnnxError("expected a value, got an optional one that is absent")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError: there is no value."""
        raise OnnxError("expected a value, got an optional one that is absent")


def leaves(value: Value) -> list[Value]:
    """The tensors in a value, with nested sequences flattened.

    Args:
        value: A tensor, a sequence or an absent value.
    """
    if isinstance(value, Items):
        return [leaf for item in value.items for leaf in leaves(item)]
    return [] if isinstance(value, Absent) else [value]


class InputType(NamedTuple):
    """The declared type of a model's input.

    Attributes:
        dtype: The element type.
        shape: The shape, with None for symbolic lengths; None if it is not declared.
        is_sequence: Whether the input is a sequence of such tensors.
        is_optional: Whether the input may be absent.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None
    is_sequence: bool = False
    is_optional: bool = False

    def checked(self, name: str, x: Any) -> Any:
        """Checks an argument against this type.

        Args:
            name: The input's name, for errors.
            x: The argument.

        Returns:
            An array or variable; a list of them for a sequence; None if absent.

        Raises:
            CallError: If a required input is None, or a sequence is not a list.
            ShapeError: If a tensor has another shape.
        """
        if x is None:
            if not self.is_optional:
                raise CallError(f"onnx.Model: expected an array as input {name!r}, got None")
            return None
        if self.is_sequence:
            if not isinstance(x, (list, tuple)):
                raise CallError(f"onnx.Model: expected a list of arrays as input {name!r}, got {type(x).__name__}")
            return [self._tensor(f"{name}[{i}]", item) for i, item in enumerate(x)]
        return self._tensor(name, x)

    def _tensor(self, name: str, x: Any) -> Any:
        """An array or variable of the declared shape."""
        found = x if isinstance(x, Variable) else np.asarray(x)
        shape = self.shape
        if shape is not None and (
            len(found.shape) != len(shape) or any(b not in (None, a) for a, b in zip(found.shape, shape, strict=True))
        ):
            raise ShapeError(f"onnx.Model: expected shape {shape} of input {name!r}, got {tuple(found.shape)}")
        return found


def input_type(held: Any, name: str) -> InputType:
    """The `InputType` of a `TypeProto`.

    Args:
        held: The `TypeProto`.
        name: The input's name, for errors.

    Raises:
        UnsupportedError: If the type is neither a tensor nor a sequence of tensors, optional or not.
    """
    from .tensors import dtype_of

    kind = held.WhichOneof("value")
    if kind == "optional_type":
        return input_type(held.optional_type.elem_type, name)._replace(is_optional=True)
    if kind == "sequence_type":
        inner = input_type(held.sequence_type.elem_type, name)
        if not inner.is_sequence and not inner.is_optional:
            return inner._replace(is_sequence=True)
    elif kind == "tensor_type":
        tensor = held.tensor_type
        shape = None
        if tensor.HasField("shape"):
            # Older exporters write -1 for a symbolic length.
            shape = tuple(
                axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0 else None
                for axis in tensor.shape.dim
            )
        return InputType(dtype_of(tensor.elem_type), shape)
    raise UnsupportedError(f"onnx.load: expected a tensor or a sequence of tensors as input {name!r}, got another type")


def parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors of inputs by name: `x` for a tensor, `x[0]`, `x[1]` and so on for a sequence.

    Args:
        given: The checked inputs by name.
    """
    found: dict[str, Any] = {}
    for name, x in given.items():
        if isinstance(x, list):
            found.update((f"{name}[{i}]", item) for i, item in enumerate(x))
        elif x is not None:
            found[name] = x
    return found


def entered(name: str, x: Any, enter: Callable[[str, Any], Value]) -> Value:
    """An input as a `Value` of the graph.

    Args:
        name: The input's name.
        x: The checked input.
        enter: Function from the name in `parts` and a tensor to a value.
    """
    if x is None:
        return Absent()
    if isinstance(x, list):
        return Items(enter(f"{name}[{i}]", item) for i, item in enumerate(x))
    return enter(name, x)


def counts(given: Sequence[Any]) -> tuple[int, ...]:
    """The structure of inputs: the length of each sequence, -1 for a tensor, -2 for an absent value.

    Args:
        given: The checked inputs.
    """
    return tuple(len(x) if isinstance(x, list) else -2 if x is None else -1 for x in given)
