"""What rows of operators are made of: values of a graph that is built, and the node that a row reads.

Knows attributes, element types and what is known while a graph is built; knows no files and no operators.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Error, UnsupportedError, Variable, are_small_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "COMPUTES",
    "MOST_FIXED",
    "NeedsValuesError",
    "Node",
    "OnnxError",
    "Row",
    "Value",
    "cast",
    "check_computed",
    "check_size",
    "check_whole",
    "may_outgrow",
]

MOST_FIXED = 1 << 18
"""Elements of an input that may decide on shapes: a graph is kept for each of its values."""


class OnnxError(Error, ValueError):
    """An ONNX file that is malformed, or a network that does not fit."""


@cache
def _memory() -> int:
    """Bytes of memory that the machine has; without a number where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def check_size(n_bytes: int) -> None:
    """Refuse arrays that must be there at the same time and do not fit into the memory of the machine.

    Args:
        n_bytes: How many bytes they have together.

    Raises:
        OnnxError: If they do not fit.
    """
    if n_bytes > _memory():
        raise OnnxError(f"expected arrays that fit into {_memory():,} bytes of memory, got {n_bytes:,} bytes")


LARGEST_WHOLE = 1 << 53
"""Up to here float64, in which graphs compute integers, has all of them."""


def check_whole(array: NDArray[Any], what: str, is_computed: bool = False) -> None:
    """Refuse integers that float64 rounds.

    Args:
        array: Whole numbers, or of another type, which is not looked at.
        what: What they are, for the message.
        is_computed: Whether they were computed in float64: then those from `LARGEST_WHOLE` on may have been rounded.

    Raises:
        OnnxError: If there is one.
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
"""Operators that make whole numbers larger than those that they take."""


def may_outgrow(value: Value, operator: str) -> bool:
    """True if a value may be integers that float64 rounds, for no other reason than this operator.

    Args:
        value: What the operator made.
        operator: Its name.
    """
    return operator in GROWING and value.is_computed and value.dtype.kind in "iu" and value.dtype.itemsize >= 4


def check_computed(array: NDArray[Any], what: str) -> None:
    """Refuse integers that were computed in float64 and may have been rounded.

    Args:
        array: The numbers, in float64.
        what: What they are, for the message.

    Raises:
        OnnxError: If there is one.
    """
    largest = np.abs(array).max(initial=0)
    if largest >= LARGEST_WHOLE:
        raise OnnxError(f"{what}: expected integers below 2^53, which float64 has all of, got {largest:.0f}")


def cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy in another type.

    Args:
        array: The array.
        dtype: The type.
    """
    if array.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 8:
        return array.astype(np.int64).astype(dtype)
    return array.astype(dtype)


class NeedsValuesError(Exception):
    """The values of some inputs are needed to build the graph, not just their shapes.

    Args:
        names: The inputs.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names)
        self.names = names


COMPUTES: ContextVar[Callable[[list[Value]], bool]] = ContextVar("computes", default=lambda values: False)
"""Computes variables while a graph is built, which become constants of it, and says whether it did."""


class Value:
    """A tensor of a graph: an array that is known while the graph is built, or a variable, with its element type.

    Args:
        content: The array or the variable.
        dtype: The element type in ONNX; variables that are computed hold float32.
        is_parameter: Whether the variable is a parameter, whose numbers are known, too.
        sources: The inputs of the model that it depends on.
    """

    def __init__(
        self,
        content: NDArray[Any] | Variable,
        dtype: Any = None,
        is_parameter: bool = False,
        sources: frozenset[str] = frozenset(),
    ) -> None:
        self._array = None if isinstance(content, Variable) else np.asarray(content)
        self._variable = content if isinstance(content, Variable) else None
        self._is_parameter = is_parameter
        self._moved: Variable | None = None
        self.dtype = np.dtype(content.dtype if dtype is None and not isinstance(content, Variable) else dtype)
        self.sources = sources

    @property
    def array(self) -> NDArray[Any] | None:
        """Its numbers, if they are known while the graph is built; of a parameter a copy of those that it has now."""
        if self._is_parameter:
            return cast(self.variable.d, self.dtype)
        return self._array

    @property
    def is_computed(self) -> bool:
        """Whether its numbers are not known before the graph is run."""
        return self._array is None and not self._is_parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its axes."""
        return tuple(self._array.shape if self._array is not None else self.variable.shape)

    @property
    def n_bytes(self) -> int:
        """Bytes of its elements, of the type that it has in ONNX."""
        return self.dtype.itemsize * (self._array.size if self._array is not None else self.variable.size)

    @property
    def known(self) -> bool:
        """Whether it is a constant: an array that nobody trains."""
        return self._array is not None

    @property
    def variable(self) -> Variable:
        """It as a variable of the graph."""
        if self._variable is None:
            array = np.asarray(self._array)
            check_whole(array, "a constant")
            if array.dtype.kind not in "fiub":
                array = array.astype(np.float32)
            self._variable = Variable.from_numpy_array(array)
        return self._variable

    @property
    def last_axis_first(self) -> Variable:
        """It as a variable with its last axis before the others, as functions take indices: one for several nodes."""
        if self._moved is None:
            order = (len(self.shape) - 1, *range(len(self.shape) - 1))
            array = self.array if self.known else None
            if array is None:
                self._moved = F.transpose(self.variable, order)
            else:
                self._moved = Value(np.ascontiguousarray(array.transpose(order))).variable
        return self._moved

    def static(self) -> NDArray[Any]:
        """Its numbers, while the graph is built.

        Raises:
            NeedsValuesError: If inputs decide on it.
        """
        if self.is_computed:
            COMPUTES.get()([self])
        array = self.array
        if array is None:
            raise NeedsValuesError(self.sources)
        return array

    def becomes(self, array: NDArray[Any]) -> None:
        """Make a constant of a variable.

        Args:
            array: Its numbers.
        """
        self._array, self._variable, self._moved, self.sources = array, None, None, frozenset()


class Node:
    """A node of a graph with its inputs, as rows read it.

    Args:
        proto: The `NodeProto`.
        domain: The domain of its operator.
        attributes: Its attributes by name, as Python values.
        inputs: Its inputs; None for those that are left out.
        version: The version of the operators of its domain.
        run: What builds a graph inside of it, of a `GraphProto` and the values of its inputs.
        captured: The values outside of the node that graphs inside of it read.
        scope: What graphs inside of it may take, by name.
        made: What earlier graphs have made of its constants, by name.
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
    ) -> None:
        self._made = {} if made is None else made
        self.proto = proto
        self.domain = domain
        self.operator: str = proto.op_type
        self.attributes = attributes
        self.inputs = inputs
        self.version = version
        self.n_outputs = len(proto.output)
        self.run = run
        self.captured = captured
        self.scope = scope

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
        """Whether an input is given.

        Args:
            i: Which.
        """
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """An input.

        Args:
            i: Which.

        Raises:
            OnnxError: If it is missing.
        """
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise OnnxError(f"{self.proto.op_type}: expected input {i}, got none")
        return found

    def x(self, i: int = 0) -> Variable:
        """An input as a variable.

        Args:
            i: Which.
        """
        return self.value(i).variable

    def optional(self, i: int) -> Variable | None:
        """An input as a variable, or None if it is left out.

        Args:
            i: Which.
        """
        return self.x(i) if self.has(i) else None

    def static(self, i: int) -> NDArray[Any]:
        """The numbers of an input while the graph is built.

        Args:
            i: Which.
        """
        if self.value(i).is_computed:  # what the node takes is computed together
            COMPUTES.get()([value for value in self.inputs if value is not None and value.is_computed])
        return self.value(i).static()

    def constant(self, i: int) -> Variable:
        """An input as a variable, whose numbers are known when the node is built.

        Args:
            i: Which.

        Raises:
            NeedsValuesError: If inputs of the model decide on it.
        """
        value = self.value(i)
        if value.is_computed:
            self.static(i)
        return value.variable

    def ints(self, i: int, name: str = "") -> list[int] | None:
        """Whole numbers of an input or, in older versions, of an attribute; None if both are missing.

        Args:
            i: Which input.
            name: The attribute.
        """
        if name and name in self.attributes:
            found = self.attributes[name]
            return [int(k) for k in (found if isinstance(found, list) else [found])]
        return [int(k) for k in self.static(i).ravel()] if self.has(i) else None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute.

        Args:
            name: Its name.
            default: What it is if it is left out.
        """
        return self.attributes.get(name, default)

    def is_integer(self, i: int = 0) -> bool:
        """Whether an input holds whole numbers.

        Args:
            i: Which.
        """
        return self.value(i).dtype.kind in "iu"

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for what an operator asks for and does not exist here.

        Args:
            what: What it asks for.
        """
        return UnsupportedError(f"onnx: {self.proto.op_type}-{self.version} (node {self.proto.name!r}): {what}")


@dataclass(frozen=True)
class Row:
    """How an operator is built.

    Args:
        build: Makes variables, arrays or values of a node.
        fold: Computes it with NumPy where all inputs are constants; by default they become variables, and the graph is
            run.
        dtype: The element type of the outputs; by default that of the first input.
        takes_words: True if it looks at strings.
    """

    build: Callable[[Node], Any]
    fold: Callable[[Node], Any] | None = None
    dtype: Any = None
    takes_words: bool = False
