"""An ONNX graph under construction: nodes, constants, names, and differences of operators between versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._core import UnsupportedError, Variable
from ..read.reading import onnx_package

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Call", "Graph", "Length", "Tensor", "per"]

FLOAT = np.dtype(np.float32)
INT = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)


class Length(int):
    """The length of an axis, which may be symbolic: `per` times the symbolic batch size plus a constant.

    Args:
        value: The length as the graph was built.
        per: Growth of the length if the batch size grows by one; 0 for a fixed length.
    """

    per: int

    def __new__(cls, value: int, per: int = 0) -> Length:
        """Makes the length; see the class."""
        made = super().__new__(cls, value)
        made.per = per
        return made


def per(length: int) -> int:
    """Growth of a length if the symbolic batch size grows by one; 0 for a fixed length.

    Args:
        length: The length.
    """
    return length.per if isinstance(length, Length) else 0


class Tensor(NamedTuple):
    """A tensor of the ONNX graph: name and element type."""

    name: str
    dtype: np.dtype[Any]
    """The element type."""


class Graph:
    """Nodes and initializers of an ONNX graph, in order.

    Args:
        opset: The operator set version.
        batch: The symbolic batch size, as the graph was built.

    Attributes:
        nodes: The `NodeProto`s.
        held: Initializers by name: arrays, or variables whose values are read when the file is written.
        open_input: An input and its symbolic axis, or None.
    """

    def __init__(self, opset: int, batch: int = 0) -> None:
        self.opset = opset
        self.batch = batch
        self.nodes: list[Any] = []
        self.held: dict[str, NDArray[Any] | Variable] = {}
        self.open_input: tuple[Tensor, int] | None = None
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        self._constants: dict[Any, Tensor] = {}
        self._open: Tensor | None = None
        self._helper = onnx_package("onnx.save").helper

    def name(self, wanted: str) -> str:
        """A new unique name: `a`, `a_1`, `a_2` and so on.

        Args:
            wanted: The name without suffix.
        """
        found = wanted
        while found in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 0) + 1
            found = f"{wanted}_{self._counts[wanted]}"
        self._taken.add(found)
        return found

    def op(self, kind: str, *inputs: Tensor | None, dtype: Any = None, **attributes: Any) -> Tensor:
        """Adds a node with one output, and returns the output.

        Args:
            kind: The operator.
            inputs: The inputs; None for omitted ones.
            dtype: The element type of the output; by default the type of the first input that is not a condition.
            attributes: The attributes. None omits an attribute.
        """
        return self.ops(kind, *inputs, n=1, dtype=dtype, **attributes)[0]

    def ops(self, kind: str, *inputs: Tensor | None, n: int, dtype: Any = None, **attributes: Any) -> list[Tensor]:
        """Adds a node with several outputs, and returns the outputs.

        Args:
            kind: The operator.
            inputs: The inputs; None for omitted ones.
            n: Number of outputs.
            dtype: The element type of all outputs, with the default of `op`.
            attributes: The attributes. None omits an attribute.
        """
        first = inputs[1:] if kind == "Where" else inputs
        kept = next((np.dtype(x.dtype) for x in first if x is not None), FLOAT) if dtype is None else np.dtype(dtype)
        outputs = [Tensor(self.name(f"{kind}_{len(self.nodes)}"), kept) for _ in range(n)]
        names = ["" if x is None else x.name for x in inputs]
        given = {key: value for key, value in attributes.items() if value is not None}
        made = self._helper.make_node(kind, names, [y.name for y in outputs], name=outputs[0].name, **given)
        self.nodes.append(made)
        return outputs

    def constant(self, values: Any, dtype: Any = None) -> Tensor:
        """A constant. Equal constants are stored once.

        Args:
            values: Its elements.
            dtype: Their type.
        """
        array = np.ascontiguousarray(np.asarray(values, dtype)).reshape(np.shape(values))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            made = Tensor(self.name("constant"), array.dtype)
            self._constants[key] = made
            self.held[made.name] = array
        return self._constants[key]

    def number(self, value: float) -> Tensor:
        """A constant of float32, of shape ().

        Args:
            value: Its element.
        """
        return self.constant(value, np.float32)

    def ints(self, values: Sequence[int]) -> Tensor:
        """A constant int64 vector.

        Args:
            values: Its elements.
        """
        return self.constant(list(values), np.int64)

    # --- Element types

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        """A tensor in another element type; the tensor itself if it has that type.

        Args:
            x: The tensor.
            dtype: The type.
        """
        wanted = np.dtype(dtype)
        if x.dtype == wanted:
            return x
        return self.op("Cast", x, dtype=wanted, to=int(self._helper.np_dtype_to_tensor_dtype(wanted)))

    def as_float(self, x: Tensor) -> Tensor:
        """A tensor in float32.

        Args:
            x: The tensor.
        """
        return self.cast(x, FLOAT)

    # --- Shapes

    def lengths(self, shape: Sequence[int]) -> Tensor:
        """A shape as a vector: a constant, or computed from an input if lengths are symbolic.

        Args:
            shape: Lengths.
        """
        if not any(map(per, shape)):
            return self.ints(shape)
        if self._open is None:
            assert self.open_input is not None
            whole = self.op("Shape", self.open_input[0], dtype=INT)
            self._open = self.op("Gather", whole, self.ints([self.open_input[1]]), axis=0)
        parts = []
        for length in shape:
            part = self.ints([length])
            if per(length):
                rest = int(length) - per(length) * self.batch
                part = self._open if per(length) == 1 else self.op("Mul", self._open, self.ints([per(length)]))
                part = self.op("Add", part, self.ints([rest])) if rest else part
            parts.append(part)
        return self.op("Concat", *parts, axis=0)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor in another shape.

        Args:
            x: The tensor.
            shape: Lengths.
        """
        open_axes = [k for k, length in enumerate(shape) if per(length)]
        if len(open_axes) == 1 and all(shape):
            return self.op("Reshape", x, self.ints([-1 if per(n) else n for n in shape]))
        keeps_zero = 1 if self.opset >= 14 and not all(shape) else None
        return self.op("Reshape", x, self.lengths(shape), allowzero=keeps_zero)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor, repeated to a shape that it broadcasts to.

        Args:
            x: The tensor.
            shape: Lengths.
        """
        return self.op("Expand", x, self.lengths(shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """A tensor with permuted axes; the tensor itself if the order stays.

        Args:
            x: The tensor.
            axes: The input axis for each output axis.
        """
        axes = [int(axis) for axis in axes]
        return x if axes == sorted(axes) else self.op("Transpose", x, perm=axes)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """A tensor without axes of length one.

        Args:
            x: The tensor.
            axes: The axes to remove.
        """
        if self.opset >= 13:
            return self.op("Squeeze", x, self.ints(axes))
        return self.op("Squeeze", x, axes=list(axes))

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """A tensor with inserted axes of length one.

        Args:
            x: The tensor.
            axes: Their positions in the result.
        """
        if self.opset >= 13:
            return self.op("Unsqueeze", x, self.ints(axes))
        return self.op("Unsqueeze", x, axes=list(axes))

    def part(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        """A slice of an axis.

        Args:
            x: The tensor.
            axis: The axis.
            start: First index.
            stop: The index after the last.
        """
        if self.opset >= 10:
            return self.op("Slice", x, self.ints([start]), self.ints([stop]), self.ints([axis]))
        return self.op("Slice", x, starts=[start], ends=[stop], axes=[axis])

    def take(self, x: Tensor, axis: int, places: Any) -> Tensor:
        """Selected indices of an axis.

        Args:
            x: The tensor.
            axis: The axis.
            places: The indices. They become a constant vector.
        """
        return self.op("Gather", x, self.ints([int(k) for k in places]), axis=axis)

    def split(self, x: Tensor, axis: int, lengths: Sequence[int]) -> list[Tensor]:
        """A tensor split along an axis.

        Args:
            x: The tensor.
            axis: The axis.
            lengths: The lengths of the parts.
        """
        if self.opset >= 13:
            return self.ops("Split", x, self.ints(lengths), n=len(lengths), axis=axis)
        return self.ops("Split", x, n=len(lengths), axis=axis, split=list(lengths))

    def pad(self, x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0.0) -> Tensor:
        """A padded tensor.

        Args:
            x: The tensor.
            widths: Padding before and after each axis.
            mode: `constant`, `reflect` or `edge`.
            value: The value of constant padding.
        """
        pads = [low for low, _ in widths] + [high for _, high in widths]
        if self.opset >= 11:
            return self.op("Pad", x, self.ints(pads), self.number(value) if mode == "constant" else None, mode=mode)
        return self.op("Pad", x, pads=pads, mode=mode, value=float(value))

    # --- Arithmetic

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], keepdims: bool = True) -> Tensor:
        """A reduction.

        Args:
            kind: The operator, for example `ReduceMean`.
            x: The tensor.
            axes: The reduced axes.
            keepdims: Whether they stay with length one.
        """
        if not len(axes):
            return x
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.op(kind, x, self.ints(axes), keepdims=int(keepdims))
        return self.op(kind, x, axes=list(axes), keepdims=int(keepdims))

    def softmax(self, kind: str, x: Tensor, axis: int, ndim: int) -> Tensor:
        """`Softmax` or `LogSoftmax` along an axis.

        Args:
            kind: The operator.
            x: The tensor.
            axis: The axis.
            ndim: Number of axes.
        """
        if self.opset >= 13 or axis == ndim - 1:  # before version 13, all axes from `axis` on were flattened
            return self.op(kind, x, axis=axis)
        order = [k for k in range(ndim) if k != axis] + [axis]
        y = self.op(kind, self.transpose(x, order), axis=ndim - 1)
        return self.transpose(y, [order.index(k) for k in range(ndim)])

    def equal(self, a: Tensor, b: Tensor) -> Tensor:
        """True where elements are equal.

        Args:
            a: A tensor.
            b: A tensor.
        """
        if self.opset >= 11:
            return self.op("Equal", a, b, dtype=BOOL)
        differ = [self.op("Less", a, b, dtype=BOOL), self.op("Greater", a, b, dtype=BOOL)]
        differ += [self.op("IsNaN", x, dtype=BOOL) for x in (a, b)]
        found = differ[0]
        for other in differ[1:]:
            found = self.op("Or", found, other)
        return self.op("Not", found)

    def standardized(self, x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """A tensor normalized to mean zero and variance one along axes, the mean, and the variance.

        Args:
            x: The tensor.
            axes: The axes.
            eps: Added to the variance.
        """
        mean = self.reduce("ReduceMean", x, axes)
        rest = self.op("Sub", x, mean)
        variance = self.reduce("ReduceMean", self.op("Mul", rest, rest), axes)
        deviation = self.op("Sqrt", self.op("Add", variance, self.number(eps)))
        return self.op("Div", rest, deviation), mean, variance


class Call:
    """A function to write as ONNX nodes, the argument of export rows.

    Args:
        graph: The ONNX graph.
        kind: The type of the function.
        args: Its arguments, from `Function.info.args`.
        inputs: Its inputs.
        shapes: The shapes of its inputs.
        outputs: The shapes of its outputs.
    """

    def __init__(
        self,
        graph: Graph,
        kind: str,
        args: Mapping[str, Any],
        inputs: Sequence[Tensor],
        shapes: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
    ) -> None:
        self.graph = graph
        self.kind = kind
        self.args = args
        self.inputs = inputs
        self.shapes = shapes
        self.outputs = outputs

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first input."""
        return self.shapes[0]

    @property
    def ndim(self) -> int:
        """The number of axes of the first input."""
        return len(self.shapes[0])

    def x(self, i: int = 0) -> Tensor:
        """An input in float32.

        Args:
            i: Index of the input.
        """
        return self.graph.as_float(self.inputs[i])

    def places(self, i: int) -> Tensor:
        """An input of indices, in int64.

        Args:
            i: Index of the input.
        """
        return self.graph.cast(self.inputs[i], INT)

    def truth(self, i: int = 0) -> Tensor:
        """An input as booleans.

        Args:
            i: Index of the input.
        """
        return self.graph.cast(self.inputs[i], BOOL)

    def optional(self, i: int) -> Tensor | None:
        """An input in float32, or None if it is omitted.

        Args:
            i: Index of the input.
        """
        return self.x(i) if i < len(self.inputs) else None

    def axis(self, key: str = "axis") -> int:
        """An argument that is an axis of the first input, as a non-negative number.

        Args:
            key: Name of the argument.
        """
        return int(self.args[key]) % max(self.ndim, 1)

    def fixed(self, axis: int) -> int:
        """The length of an axis of the first input. Raises UnsupportedError if it is symbolic.

        Args:
            axis: The axis.
        """
        if per(self.shape[axis]):
            raise self.refused(f"axis {axis} to have a length that is known")
        return int(self.shape[axis])

    def needs(self, opset: int) -> None:
        """Raises UnsupportedError if the operator set version is too old.

        Args:
            opset: The first version with the needed operators.
        """
        if self.graph.opset < opset:
            raise self.refused(f"opset {opset} or later, got {self.graph.opset}")

    def refused(self, what: str) -> UnsupportedError:
        """The error for a function that cannot be written.

        Args:
            what: The unmet expectation.
        """
        shapes = [tuple(map(int, shape)) for shape in self.shapes]
        return UnsupportedError(f"onnx.save: {self.kind} of inputs {shapes}: expected {what}")
