"""Values and nodes of an ONNX graph while it is built, and the table rows that build operators."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Error, UnsupportedError, Variable, are_small_whole, set_up_all
from ...context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from .body import Body

__all__ = [
    "COMPUTES",
    "DOUBLE",
    "MOST_FIXED",
    "TRACE",
    "NeedsValuesError",
    "Node",
    "OnnxError",
    "Row",
    "Trace",
    "Value",
    "always",
    "cast",
    "check_computed",
    "check_size",
    "check_whole",
    "may_outgrow",
    "note_free",
    "note_lengths",
    "note_same",
]

DOUBLE = Context(["cpu:double"])
"""A context that computes in float64."""

MOST_FIXED = 1 << 18
"""The most elements of an input on whose values shapes may depend. A graph is cached for each of its values."""


class OnnxError(Error, ValueError):
    """A malformed ONNX file, or inputs that do not fit the network."""


@cache
def _memory() -> int:
    """The memory of the machine in bytes; a very large number if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def check_size(n_bytes: int) -> None:
    """Raises OnnxError if arrays do not fit into the memory of the machine.

    Args:
        n_bytes: Total size of the arrays.

    Raises:
        OnnxError: If they do not fit.
    """
    if n_bytes > _memory():
        raise OnnxError(f"expected arrays that fit into {_memory():,} bytes of memory, got {n_bytes:,} bytes")


LARGEST_WHOLE = 1 << 53
"""All integers up to this are exact in float64, in which graphs compute integers."""


def check_whole(array: NDArray[Any], what: str, is_computed: bool = False) -> None:
    """Raises OnnxError if an array has integers that are not exact in float64.

    Args:
        array: The array. Arrays of other types are not checked.
        what: Name of the array in the error.
        is_computed: Whether it was computed in float64. Then integers from `LARGEST_WHOLE` on may be rounded.

    Raises:
        OnnxError: If there is such an integer.
    """
    if array.dtype.kind not in "iu" or array.itemsize < 4 or array.size == 0 or are_small_whole(array):
        return
    limit = LARGEST_WHOLE - is_computed
    found = [odd for odd in (int(array.max()), int(array.min())) if abs(odd) > limit]
    if found and not is_computed:
        with np.errstate(invalid="ignore"):
            found = array[array.astype(np.float64).astype(array.dtype) != array].tolist()
    if found:
        raise OnnxError(f"{what}: expected integers that float64 has, up to 2^53, got {found[0]}")


GROWING = frozenset(["Add", "CumSum", "Mul", "Pow", "ReduceProd", "ReduceSum", "Sub", "Sum"])
"""Operators whose integer outputs can be larger than their inputs."""


def may_outgrow(value: Value, operator: str) -> bool:
    """True if an operator may have made integers that are too large for float64.

    Args:
        value: The operator's output.
        operator: The operator's name.
    """
    return operator in GROWING and value.is_computed and value.dtype.kind in "iu" and value.dtype.itemsize >= 4


def check_computed(array: NDArray[Any], what: str) -> None:
    """Raises OnnxError if integers computed in float64 may have been rounded.

    Args:
        array: The integers, as float64.
        what: Name of the array in the error.

    Raises:
        OnnxError: If there is such an integer.
    """
    largest = np.abs(array).max(initial=0)
    if largest >= LARGEST_WHOLE:
        raise OnnxError(f"{what}: expected integers below 2^53, which float64 has all of, got {largest:.0f}")


def cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy in another element type. Floats become small integers by way of int64, so that they wrap around.

    Args:
        array: The array.
        dtype: The type.
    """
    if array.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 8:
        return array.astype(np.int64).astype(dtype)
    return array.astype(dtype)


class NeedsValuesError(Exception):
    """Raised while building a graph that depends on the values of some inputs, not only on their shapes.

    Args:
        names: The inputs.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self.names = names


COMPUTES: ContextVar[Callable[[list[Value]], bool]] = ContextVar("computes", default=lambda values: False)
"""A function that turns variables into constants while a graph is built. Returns True if it did."""


class Trace:
    """A record of the dependencies of a node's functions, made while they are built.

    Attributes:
        has_lengths: True if an argument of a function may follow from lengths of the inputs of the model.
        is_same: True for inputs from which the node makes the same functions. None if that is not known.
        is_in_place: Whether the node may reshape an array in place that functions have computed.
    """

    __slots__ = ("has_lengths", "is_in_place", "is_same")

    def __init__(self) -> None:
        self.has_lengths = False
        self.is_in_place = False
        self.is_same: Callable[[Sequence[Value | None]], bool] | None = None


TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the current node, if the graph will be given inputs of other shapes."""


def note_lengths() -> None:
    """Notes that the functions of the current node may depend on lengths of the inputs of the model."""
    trace = TRACE.get()
    if trace is not None:
        trace.has_lengths = True


def note_same(is_same: Callable[[Sequence[Value | None]], bool] | None) -> None:
    """Notes that the current node makes the same functions of certain inputs of other lengths.

    Args:
        is_same: Returns True for such inputs, after it has stored what follows from them in constants that the node
            has made. None if there are none.
    """
    trace = TRACE.get()
    if trace is not None:
        trace.is_same = is_same


def always(inputs: Sequence[Value | None]) -> bool:
    """True: the functions of a node fit inputs of all lengths, as long as its constants stay the same.

    Args:
        inputs: The inputs of the node.
    """
    return True


def note_free() -> None:
    """Notes that the functions of the current node fit inputs of all lengths, unless its constants change."""
    note_same(always)


class Value:
    """A tensor of a graph while it is built: a constant array or a variable, with its ONNX element type.

    Args:
        content: The array or the variable.
        dtype: The ONNX element type. Computed variables hold floats.
        is_parameter: Whether the variable is a parameter.
        sources: The inputs of the model on which it depends.
        restore: Reloads the values of variables that were freed.

    Attributes:
        has_lengths: True for a constant that follows from lengths of the inputs of the model.
    """

    has_lengths = False
    _array: NDArray[Any] | None = None
    _variable: Variable | None = None
    _moved: Variable | None = None
    _is_parameter = False
    _restore: Callable[[list[Variable]], None] | None = None

    def __init__(
        self,
        content: NDArray[Any] | Variable,
        dtype: Any = None,
        is_parameter: bool = False,
        sources: frozenset[str] = frozenset(),
        restore: Callable[[list[Variable]], None] | None = None,
    ) -> None:
        if isinstance(content, Variable):
            self._variable = content
            self.dtype: np.dtype[Any] = np.dtype(dtype)
        else:
            self._array = np.asarray(content)
            self.dtype = self._array.dtype if dtype is None else np.dtype(dtype)
        if is_parameter:
            self._is_parameter = True
            self._restore = restore
        self.sources = sources

    @property
    def array(self) -> NDArray[Any] | None:
        """The elements of a constant, or a copy of a parameter's current values. None for computed values."""
        if self._is_parameter:
            if self._restore is not None:
                self._restore([self.variable])
            return cast(self.variable.d, self.dtype)
        if self.has_lengths:
            note_lengths()
        return self._array

    @property
    def is_computed(self) -> bool:
        """True if the elements are known only after the graph has run."""
        return self._array is None and not self._is_parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self._array.shape if self._array is not None else self.variable.shape)

    @property
    def n_bytes(self) -> int:
        """The size in bytes, in the ONNX element type."""
        return self.dtype.itemsize * (self._array.size if self._array is not None else self.variable.size)

    @property
    def known(self) -> bool:
        """True for a constant. Parameters are not constants."""
        return self._array is not None

    @property
    def variable(self) -> Variable:
        """The value as a variable of the graph."""
        if self._variable is None:
            array = np.asarray(self._array)
            check_whole(array, "a constant")
            if array.dtype.kind not in "fiub":
                array = array.astype(np.float32)
            self._variable = Variable.from_numpy_array(array)
        return self._variable

    @property
    def last_axis_first(self) -> Variable:
        """The value as a variable with the last axis moved to the front, for index arguments. Cached for all nodes."""
        if self._moved is None:
            order = (len(self.shape) - 1, *range(len(self.shape) - 1))
            array = self.array if self.known else None
            if array is None:
                self._moved = F.transpose(self.variable, order)
            else:
                self._moved = Value(np.ascontiguousarray(array.transpose(order))).variable
        elif self._moved.parent is not None:
            set_up_all([self._moved])  # the variable may have another shape since
        return self._moved

    def static(self) -> NDArray[Any]:
        """The elements while the graph is built.

        Raises:
            NeedsValuesError: If they depend on inputs of the model.
        """
        if self.is_computed:
            COMPUTES.get()([self])
        array = self.array
        if array is None:
            raise NeedsValuesError(self.sources)
        return array

    def is_equal(self, other: Value) -> bool:
        """True if another constant has the same elements and type.

        Args:
            other: The constant.
        """
        a, b = self._array, other._array
        return (
            a is not None
            and b is not None
            and self.dtype == other.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )

    def take_variable(self, other: Value) -> None:
        """Takes over the variable of a constant, which gets the elements of this one.

        Args:
            other: The constant.

        Raises:
            OnnxError: If the variable does not fit.
        """
        variable, array = other._variable, self._array
        if variable is None or array is None:
            return
        if other._array is None or other._array.ndim != array.ndim or other.dtype != self.dtype:
            raise OnnxError(f"expected a constant like {other.dtype}{other.shape}, got {self.dtype}{self.shape}")
        check_whole(array, "a constant")
        if array.shape != other._array.shape:
            variable.reset_shape(array.shape, True)
        variable.d = array
        self._variable = variable

    def becomes(self, array: NDArray[Any]) -> None:
        """Turns a computed value into a constant.

        Args:
            array: Its elements.
        """
        self._array, self._variable, self._moved, self.sources = array, None, None, frozenset()


class Node:
    """A node of a graph with its inputs, the argument of table rows.

    Args:
        proto: The `NodeProto`.
        domain: The domain of its operator.
        attributes: Its attributes by name, as Python values.
        inputs: Its inputs; None for an omitted input.
        version: The version of the operators of its domain.
        run: Builds a graph inside of the node from a `GraphProto` and the values of its inputs.
        captured: The values outside of the node that graphs inside of it read.
        scope: Values that graphs inside of it may read, by name.
        made: Objects that earlier graphs have derived from its constants, by name.
        apart: Builds a graph inside of it as a graph of its own.
    """

    def __init__(
        self,
        proto: Any,
        domain: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Value | None],
        version: int,
        run: Callable[..., list[Value]] | None = None,
        captured: Sequence[Value] = (),
        scope: Mapping[str, Value | None] = MappingProxyType({}),
        made: dict[str, Any] | None = None,
        apart: Callable[..., Body | None] | None = None,
    ) -> None:
        self.apart = apart
        self._made = {} if made is None else made
        self.proto = proto
        self.domain = domain
        self.operator: str = proto.op_type
        self.attributes = attributes
        self.inputs = inputs
        self.version = version
        self.run = run
        self.captured = captured
        self.scope = scope

    @property
    def n_outputs(self) -> int:
        """The number of its outputs."""
        return len(self.proto.output)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns an object that follows from attributes and constants alone: all graphs of a model share it.

        Args:
            name: Its name.
            make: Makes it for the first graph.
        """
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def has(self, i: int) -> bool:
        """True if an input is given.

        Args:
            i: Index of the input.
        """
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """An input.

        Args:
            i: Index of the input.

        Raises:
            OnnxError: If it is missing.
        """
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise OnnxError(f"{self.proto.op_type}: expected input {i}, got none")
        return found

    def is_fixed(self) -> bool:
        """True if all inputs but the first are constants that do not follow from lengths, or missing."""
        return all(value is None or (value.known and not value.has_lengths) for value in self.inputs[1:])

    def x(self, i: int = 0) -> Variable:
        """An input as a variable.

        Args:
            i: Index of the input.
        """
        return self.value(i).variable

    def optional(self, i: int) -> Variable | None:
        """An input as a variable, or None if it is omitted.

        Args:
            i: Index of the input.
        """
        return self.x(i) if self.has(i) else None

    def static(self, i: int) -> NDArray[Any]:
        """The elements of an input while the graph is built.

        Args:
            i: Index of the input.
        """
        held = self.value(i)
        if type(held) is Value and held._array is not None:
            if held.has_lengths:
                note_lengths()
            return held._array
        if held.is_computed:  # all inputs of the node are computed together
            COMPUTES.get()([value for value in self.inputs if value is not None and value.is_computed])
        return held.static()

    def constant(self, i: int) -> Variable:
        """An input as a variable whose elements are known while the graph is built.

        Args:
            i: Index of the input.

        Raises:
            NeedsValuesError: If they depend on inputs of the model.
        """
        value = self.value(i)
        if value.is_computed:
            self.static(i)
        return value.variable

    def ints(self, i: int, name: str = "") -> list[int] | None:
        """The integers of an input or, in older versions, of an attribute; None if both are missing.

        Args:
            i: Index of the input.
            name: Name of the attribute.
        """
        if name and name in self.attributes:
            found = self.attributes[name]
            return [int(k) for k in (found if isinstance(found, list) else [found])]
        if not self.has(i):
            return None
        array = self.static(i)
        found = array.ravel().tolist()
        return found if array.dtype.kind in "iu" else list(map(int, found))

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute.

        Args:
            name: Its name.
            default: The value of an omitted attribute.
        """
        return self.attributes.get(name, default)

    def is_integer(self, i: int = 0) -> bool:
        """True if an input has an integer type.

        Args:
            i: Index of the input.
        """
        return self.value(i).dtype.kind in "iu"

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for an unsupported variant of an operator.

        Args:
            what: The expectation and the finding, as "expected ..., got ...".
        """
        return UnsupportedError(f"onnx: {self.proto.op_type}-{self.version} (node {self.proto.name!r}): {what}")


@dataclass(frozen=True)
class Row:
    """The implementation of an operator.

    Args:
        build: Makes variables, arrays or values of a node.
        fold: Computes it with NumPy where all inputs are constants; by default they become variables, and the graph is
            run.
        dtype: The element type of the outputs; by default the type of the first input.
        takes_words: True if it looks at strings.
        is_free: True if `build` makes the same functions with the same arguments for inputs of other lengths. It calls
            `note_lengths` where that does not hold.
    """

    build: Callable[[Node], Any]
    fold: Callable[[Node], Any] | None = None
    dtype: Any = None
    takes_words: bool = False
    is_free: bool = False
