"""Operators on shapes and indices, such as reshape, slice and gather; and `If` with a constant condition."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ...._core import functions as core
from ..array_function import computed_by_arrays
from ..tensors import dtype_of
from ..values import TRACE, OnnxError, Row, Value, check_size, note_free, note_lengths, note_same
from .building import expand, reshape, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["SHAPES"]


_REST = -2
"""Stands for a length that follows from the number of elements, where others are axes of the input, or -1 if fixed."""


def _target(node: Node) -> tuple[list[int], list[int] | None]:
    """The output shape of `Reshape`, and where its lengths come from."""
    wanted = node.ints(1, "shape")
    if wanted is None:
        raise OnnxError("Reshape: expected a shape, got none")
    shape = node.value(0).shape
    size, axes = math.prod(shape), [-1] * len(wanted)
    if 0 in wanted and not node.get("allowzero", 0):
        axes = [k if length == 0 else -1 for k, length in enumerate(wanted)]
        wanted = [shape[k] if length == 0 else length for k, length in enumerate(wanted)]
    if -1 in wanted:
        at = wanted.index(-1)
        rest = math.prod(length for length in wanted if length != -1)
        wanted[at], axes[at] = size // rest if rest else 0, _REST
    if math.prod(wanted) != size:
        raise OnnxError(f"Reshape: expected {size} elements, got shape {wanted}")
    return wanted, axes


def _flattened(node: Node) -> tuple[list[int], list[int] | None]:
    """The output shape of `Flatten`, and where its lengths come from."""
    shape, axis = node.value(0).shape, node.get("axis", 1)
    axis, n = axis + len(shape) if axis < 0 else axis, len(shape)
    axes = {0: [-1, _REST], 1: [0, _REST], n - 1: [_REST, axis], n: [_REST, -1]}.get(axis)
    return [math.prod(shape[:axis]), math.prod(shape[axis:])], axes


def _squeezed(node: Node) -> tuple[list[int], list[int] | None]:
    """The output shape of `Squeeze`, and where its lengths come from."""
    shape = node.value(0).shape
    axes = node.ints(1, "axes")
    if not axes:
        return [length for length in shape if length != 1], None
    gone = {axis % len(shape) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise OnnxError(f"Squeeze: expected axes of length one, got {axes} of {shape}")
    left = [axis for axis in range(len(shape)) if axis not in gone]
    return [shape[axis] for axis in left], left


def _unsqueezed(node: Node) -> tuple[list[int], list[int] | None]:
    """The output shape of `Unsqueeze`, and where its lengths come from."""
    shape, axes = list(node.value(0).shape), node.ints(1, "axes") or []
    from_axes = list(range(len(shape)))
    ndim = len(shape) + len(axes)
    for axis in sorted(axis % ndim for axis in axes):
        shape.insert(axis, 1)
        from_axes.insert(axis, -1)
    return shape, from_axes


def _expanded(node: Node) -> list[int]:
    """The output shape of `Expand`."""
    return list(np.broadcast_shapes(node.value(0).shape, tuple(node.ints(1) or [])))


def _reshaping(target: Callable[[Node], tuple[list[int], list[int] | None]]) -> Row:
    """A row for a reshape.

    Args:
        target: Returns the output shape of a node and the axes of its lengths. The axis of a length is the one that has
            it in the input, -1 for a fixed length, or `_REST`. Without axes, lengths of the input decide on the shape.
    """

    def build(node: Node) -> Variable:
        """Builds the reshape."""
        x, trace = node.x(), TRACE.get()
        shape, axes = target(node)
        is_in_place = trace is not None and trace.is_in_place and x.parent is not None
        if trace is None or axes is None or 0 in shape or not node.is_fixed():
            return F.reshape(x, tuple(shape), inplace=is_in_place)
        return _free_reshape(x, shape, axes, is_in_place)

    return Row(build, lambda node: np.reshape(node.static(0), target(node)[0]))


def _free_reshape(x: Variable, shape: Sequence[int], axes: Sequence[int], is_in_place: bool = False) -> Variable:
    """A reshape that fits an input of other lengths.

    Args:
        x: The input.
        shape: The output shape.
        axes: For each length, the axis of the input that it is the length of, -1 if it is fixed, or `_REST`.
        is_in_place: Whether it shares memory with the input.
    """
    note_free()
    wanted = [-1 if axis == _REST else length for length, axis in zip(shape, axes, strict=True)]
    return F.reshape(x, wanted, inplace=is_in_place, axes=[max(axis, -1) for axis in axes])


def _axes(node: Node) -> list[int]:
    """The permutation of `Transpose`."""
    return list(node.get("perm") or range(len(node.value(0).shape))[::-1])


def _transpose(node: Node) -> Variable:
    """Builds `Transpose`. Two transposes that cancel, as around recurrent layers, are both left out."""
    x, axes = node.x(), _axes(node)
    before = x.parent
    if before is not None and before.name == "Transpose":
        is_undone = [before.args["axes"][axis] for axis in axes] == sorted(axes)
        if is_undone and before.inputs[0].parent is not None:
            return before.inputs[0]
    return F.transpose(x, axes) if axes else F.identity(x)


def _concat(node: Node) -> Variable:
    """Builds `Concat`."""
    xs = [node.x(i) for i in range(len(node.inputs))]
    axis = node.get("axis", 1)
    full = [x for x in xs if x.shape[axis]] or xs[:1]
    if len(full) < len(xs):
        note_lengths()
    return F.concatenate(*full, axis=axis) if len(full) > 1 else F.identity(full[0])


def _given_slices(node: Node) -> tuple[slice, ...]:
    """The Python slices of `Slice`, one for each axis, which fit inputs of all lengths."""
    starts, ends = node.ints(1, "starts") or [], node.ints(2, "ends") or []
    found = [slice(None, None, 1)] * len(node.value(0).shape)
    axes = node.ints(3, "axes") if node.has(3) or "axes" in node.attributes else None
    steps = (node.ints(4) if node.has(4) else None) or [1] * len(starts)
    for axis, *given in zip(axes if axes is not None else range(len(starts)), starts, ends, steps, strict=False):
        found[axis] = slice(*given)
    return tuple(found)


def _slices(node: Node) -> tuple[slice, ...]:
    """The Python slices of `Slice`, one for each axis, with bounds within the input."""
    found = []
    for length, given in zip(node.value(0).shape, _given_slices(node), strict=True):
        start, end, step = given.start, given.stop, given.step
        if not step:
            raise OnnxError("Slice: expected steps other than zero, got zero")
        if start is None:
            found.append(slice(0, length, 1))
            continue
        low, high = (0, length) if step > 0 else (-1, length - 1)
        start = min(max(start + length if start < 0 else start, 0), high if step < 0 else length)
        end = min(max(end + length if end < 0 else end, low), length)
        found.append(slice(start, end if end >= 0 else None, step))
    return tuple(found)


def _lengths_of(slices: Sequence[slice], shape: Sequence[int]) -> list[int]:
    """The lengths of an array of a shape after slicing."""
    return [len(range(*s.indices(n))) for s, n in zip(slices, shape, strict=True)]


def _slice(node: Node) -> Any:
    """Builds `Slice`."""
    found = _slices(node)
    x = node.value(0)
    lengths = _lengths_of(found, x.shape)
    if 0 in lengths:
        return Value(np.zeros(lengths, x.dtype))
    if tuple(lengths) == x.shape and all(s.step == 1 for s in found):
        return F.reshape(x.variable, x.shape, inplace=False)  # the graph drops it
    if TRACE.get() is not None and node.is_fixed() and _lengths_of(given := _given_slices(node), x.shape) == lengths:
        note_free()
        found = given
    return sliced(x.variable, [s.start for s in found], [s.stop for s in found], [s.step for s in found])


def _split_lengths(node: Node) -> tuple[int, list[int]]:
    """The axis and the lengths of `Split`."""
    axis = node.get("axis", 0)
    length = node.value(0).shape[axis]
    given = node.ints(1, "split")
    if given is None:
        n = node.get("num_outputs", node.n_outputs)
        each = -(-length // n)
        given = [each] * (n - 1) + [length - each * (n - 1)]
    if sum(given) != length or min(given) < 0:
        raise OnnxError(f"Split: expected lengths that add up to {length}, got {given}")
    return axis % len(node.value(0).shape), given


def _has_length(axis: int, length: int, inputs: Sequence[Value | None]) -> bool:
    """True if an axis of the first input has a length."""
    return inputs[0] is not None and inputs[0].shape[axis] == length


def _split(node: Node) -> list[Any]:
    """Builds `Split`."""
    axis, lengths = _split_lengths(node)
    x, made, at = node.x(), [], 0
    if node.is_fixed() and all(lengths):
        note_same(partial(_has_length, axis, x.shape[axis]))
    for length in lengths:
        start: list[int | None] = [0] * x.ndim
        stop: list[int | None] = [None] * x.ndim
        start[axis], stop[axis] = at, at + length
        shape = [length if k == axis else n for k, n in enumerate(x.shape)]
        made.append(sliced(x, start, stop) if length else np.zeros(shape, node.value(0).dtype))
        at += length
    return made


def _fold_split(node: Node) -> list[Any]:
    """Computes `Split` by NumPy."""
    axis, lengths = _split_lengths(node)
    return list(np.split(node.static(0), np.cumsum(lengths)[:-1], axis=axis))


def _gather(node: Node) -> Variable:
    """Builds `Gather`."""
    x, axis = node.x(0), node.get("axis", 0)
    if not node.value(1).known:
        return F.gather(x, node.x(1), axis=axis)
    if not node.value(1).shape:
        note_lengths()
        index, axis = int(node.static(1)), axis % x.ndim
        start: list[int | None] = [0] * x.ndim
        stop: list[int | None] = [None] * x.ndim
        start[axis], stop[axis] = index, index + 1 if index != -1 else None
        part, left = sliced(x, start, stop), [k for k in range(x.ndim) if k != axis]
        if TRACE.get() is not None and node.is_fixed():
            return _free_reshape(part, [part.shape[k] for k in left], left)
        return reshape(part, [part.shape[k] for k in left])
    return F.gather(x, node.x(1), axis=axis)


def _fold_gather(node: Node) -> Any:
    """Computes `Gather` by NumPy."""
    return np.take(node.static(0), node.static(1), axis=node.get("axis", 0))


def _along(indices: Variable, axis: int) -> Variable:
    """The indices of `gather_nd` for indices along one axis: they get rows for the other axes."""
    if indices.ndim == 1:
        return F.reshape(indices, (1, *indices.shape), inplace=False)
    shape = tuple(indices.shape)
    return F.stack(*(indices if k == axis else _position(shape, k) for k in range(len(shape))), axis=0)


def _before_repeats(node: Node, place: int, most: Sequence[int]) -> Variable:
    """The indices of `GatherElements` or `ScatterElements` without the last axes along which they only repeat.

    Args:
        node: The node. Its input after `place + 1` inputs of the operator is what `Expand` or `Tile` made the indices
            of, if they did.
        place: The last input of the operator.
        most: Lengths that the indices must have along axes that are left out, by axis.
    """
    shape = node.value(1).shape
    if not node.has(place + 1) or 0 in shape:
        return node.x(1)
    before, n = node.value(place + 1), len(shape)
    short = (1,) * (n - len(before.shape)) + before.shape
    if any(length not in (1, whole) for length, whole in zip(short, shape, strict=True)):
        return node.x(1)  # `Tile` repeated more than one element
    rest = n
    while rest - 1 > node.get("axis", 0) % n and short[rest - 1] == 1 and shape[rest - 1] == most[rest - 1]:
        rest -= 1
    if rest == n:
        return node.x(1)
    return expand(reshape(before.variable, short[:rest]), shape[:rest])


def _note_one_axis(node: Node, axis: int) -> None:
    """Notes that a node makes the same functions as long as only one axis of its first input has another length."""

    def lengths(inputs: Sequence[Value | None]) -> list[list[int] | None]:
        """The shapes of the inputs, the first one without the axis."""
        shapes = [None if value is None else list(value.shape) for value in inputs]
        if shapes[0] is not None:
            shapes[0][axis] = 0
        return shapes

    before = lengths(node.inputs)
    note_same(lambda inputs: lengths(inputs) == before)


def _position(shape: tuple[int, ...], axis: int) -> Variable:
    """Each element's index along an axis."""
    found = np.empty(shape, np.int64)
    found[...] = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return Variable.from_numpy_array(found)


def _gather_elements(node: Node) -> Variable:
    """Builds `GatherElements`."""
    x, shape = node.x(), node.value(1).shape
    axis = node.get("axis", 0) % x.ndim
    _note_one_axis(node, axis)
    indices = _before_repeats(node, 1, shape)
    stop: list[int | None] = [shape[k] if k >= indices.ndim else None for k in range(x.ndim)]
    if any(n not in (None, length) for n, length in zip(stop, x.shape, strict=True)):
        x = sliced(x, [0] * x.ndim, stop)
    if indices.ndim == 1:
        return F.gather(x, indices, axis=0)
    return F.gather_nd(x, _along(indices, axis))


def _fold_gather_elements(node: Node) -> Any:
    """Computes `GatherElements` by NumPy."""
    x, indices = node.static(0), node.static(1)
    axis = node.get("axis", 0) % x.ndim
    within = tuple(slice(None if k == axis else n) for k, n in enumerate(indices.shape))
    return np.take_along_axis(x[within], indices, axis)


def _gather_nd(node: Node) -> Variable:
    """Builds `GatherND`."""
    x, chosen = node.x(0), node.value(1).last_axis_first
    n = node.get("batch_dims", 0)
    if n:
        note_lengths()
        rows = [_position(tuple(chosen.shape[1:]), k) for k in range(n)]
        chosen = F.concatenate(F.stack(*rows, axis=0), chosen, axis=0)
    return F.gather_nd(x, chosen)


_REDUCTIONS = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""Reductions of elements at equal places, which have no gradient here."""


def _reduced(node: Node, places: Callable[[NDArray[Any]], tuple[NDArray[Any], ...]]) -> Value:
    """Returns the first input, reduced with the third one at places that follow from the second one."""
    kind = node.get("reduction")
    if kind not in _REDUCTIONS:
        raise node.unsupported(f"expected the reduction none, add, {', '.join(_REDUCTIONS)}, got {kind}")

    def compute(x: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any]) -> list[NDArray[Any]]:
        """Reduces elements one after another, as places may be equal."""
        y = np.array(x)
        _REDUCTIONS[kind].at(y, places(indices.astype(np.int64)), updates)
        return [y]

    x = node.value(0)
    inputs = [node.value(i) for i in range(3)]
    return computed_by_arrays(node.operator, compute, inputs, [x.shape], [x.dtype])[0]


def _scattered(node: Node, indices: Variable) -> Variable:
    """The first input with the third one stored at, or added to, indices (n, ...)."""
    x, updates = node.value(0), node.x(2)
    if node.get("reduction", "none") != "add":
        y: Variable = core.scatter_nd(updates, indices, F.identity(x.variable))  # the shape follows `x`
        return y
    sums = F.scatter_nd(updates, indices, shape=x.shape, add=True)
    return sums if x.known and not np.any(x.static()) else x.variable + sums


def _scatter_nd(node: Node) -> Variable | Value:
    """Builds `ScatterND`."""
    if node.get("reduction", "none") not in ("none", "add"):
        return _reduced(node, lambda indices: tuple(np.moveaxis(indices, -1, 0)))
    if node.get("reduction", "none") == "none":
        note_free()
    return _scattered(node, node.value(1).last_axis_first)


def _scatter_elements(node: Node) -> Variable | Value:
    """Builds `Scatter` and `ScatterElements`."""
    shape = node.value(0).shape
    axis = node.get("axis", 0) % len(shape)
    if node.get("reduction", "none") not in ("none", "add"):

        def places(indices: NDArray[Any]) -> tuple[NDArray[Any], ...]:
            """Returns the index of each element along each axis."""
            return tuple(indices if k == axis else np.asarray(at) for k, at in enumerate(np.indices(indices.shape)))

        return _reduced(node, places)
    if node.get("reduction", "none") == "none":
        _note_one_axis(node, axis)
    return _scattered(node, _along(_before_repeats(node, 2, shape), axis))


def _tile(node: Node) -> Variable:
    """Builds `Tile`."""
    return F.tile(node.x(), tuple(node.ints(1) or []))


def _range(node: Node) -> Any:
    """Builds `Range`."""
    start, stop, step = (node.static(i) for i in range(3))
    if step != 0:
        check_size(max(int((stop.item() - start.item()) / step.item()), 0) * start.itemsize)
    return np.arange(start.item(), stop.item(), step.item(), dtype=start.dtype)


def _constant(node: Node) -> Any:
    """Builds `Constant`."""
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if name in node.attributes:
            return np.asarray(node.get(name), dtype)
    if "value_ints" in node.attributes:
        return np.asarray(node.get("value_ints"), np.int64)
    for name in ("value_string", "value_strings"):
        if name in node.attributes:
            return np.asarray(node.get(name), object)
    if not isinstance(node.get("value"), np.ndarray):
        raise node.unsupported("expected a tensor of numbers, got another constant")
    return node.get("value")


def _constant_of_shape(node: Node) -> Any:
    """Builds `ConstantOfShape`."""
    held = node.get("value")
    found = np.zeros(1, np.float32) if held is None else held
    shape = node.ints(0) or []
    check_size(math.prod(shape) * found.itemsize)
    return np.full(shape, found.ravel()[0], found.dtype)


def _shape(node: Node) -> Any:
    """Builds `Shape`."""
    shape = node.value(0).shape
    return np.asarray(shape[slice(node.get("start", 0), node.get("end"))], np.int64)


def _pad_widths(node: Node) -> list[tuple[int, int]]:
    """The padding before and after each axis of `Pad`."""
    ndim = len(node.value(0).shape)
    widths = node.ints(1, "pads") or []
    axes = [axis % ndim for axis in (node.ints(3) or [])] if node.has(3) else list(range(ndim))
    found = [(0, 0)] * ndim
    for k, axis in enumerate(axes):
        found[axis] = widths[k], widths[k + len(axes)]
    return found


def _pad(node: Node) -> Variable:
    """Builds `Pad`."""
    mode = node.get("mode", "constant")
    widths = _pad_widths(node)
    number = float(node.static(2).item()) if node.has(2) else node.get("value", 0.0)
    x = node.x()
    if mode != "wrap" and node.is_fixed():
        note_free()
    if any(width < 0 for pair in widths for width in pair):
        start = [max(-low, 0) for low, _ in widths]
        stop = [min(high, 0) or None for _, high in widths]
        x = sliced(x, start, stop)
        widths = [(max(low, 0), max(high, 0)) for low, high in widths]
    if mode == "wrap":
        for axis, (low, high) in enumerate(widths):
            if low or high:
                found = np.arange(-low, x.shape[axis] + high) % x.shape[axis]
                x = F.gather(x, _indices(found), axis=axis)
        return x
    kind = {"constant": "constant", "reflect": "reflect", "edge": "repeat"}.get(mode)
    if kind is None:
        raise node.unsupported(f"expected a known mode, got {mode}")
    return F.pad(x, [width for pair in widths for width in pair], kind, number)


def _indices(found: Any) -> Variable:
    """An int64 variable."""
    return Variable.from_numpy_array(np.asarray(found, np.int64))


def _depth_to_space(node: Node) -> Variable:
    """Builds `DepthToSpace`."""
    x, b = node.x(), node.get("blocksize")
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "DCR":
        y = F.transpose(reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = F.transpose(reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return F.reshape(y, (n, c // b**2, h * b, w * b), inplace=False)


def _space_to_depth(node: Node) -> Variable:
    """Builds `SpaceToDepth`."""
    x, b = node.x(), node.get("blocksize")
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    y = F.transpose(reshape(x, (n, c, h // b, b, w // b, b)), order)
    return F.reshape(y, (n, c * b**2, h // b, w // b), inplace=False)


def _one_hot(node: Node) -> Any:
    """Builds `OneHot`."""
    depth = int(node.static(1).ravel()[0])
    indices = node.x(0)
    axis = node.get("axis", -1) % (indices.ndim + 1)
    levels = np.arange(depth).reshape([-1 if k == axis else 1 for k in range(indices.ndim + 1)])
    wrapped = indices + F.less_scalar(indices, 0.0) * float(depth)
    shape = [*indices.shape[:axis], 1, *indices.shape[axis:]]
    wide = [*indices.shape[:axis], depth, *indices.shape[axis:]]
    hot = F.equal(expand(F.reshape(wrapped, shape, inplace=False), wide), expand(_indices(levels), wide))
    values = node.x(2)
    off, on = (F.slice(values, (k,), (k + 1,), (1,)) for k in (0, 1))
    y = F.where(hot, expand(on, wide), expand(off, wide))
    return Value(y, node.value(2).dtype, sources=node.value(0).sources | node.value(2).sources)


def _trilu(node: Node) -> Variable:
    """Builds `Trilu`."""
    x, k, upper = node.x(), int(node.static(1).item()) if node.has(1) else 0, node.get("upper", 1)
    rows, columns = np.indices(x.shape[-2:])
    hidden = columns - rows < k if upper else columns - rows > k
    mask = hidden.astype(np.float32).reshape((1,) * (x.ndim - 2) + hidden.shape)
    return F.bool_fill(x, Variable.from_numpy_array(mask), 0.0)


def _fold_trilu(node: Node) -> Any:
    """Computes `Trilu` by NumPy."""
    k = int(node.static(1).item()) if node.has(1) else 0
    return (np.triu if node.get("upper", 1) else np.tril)(node.static(0), k)


def _eye_like(node: Node) -> Any:
    """Builds `EyeLike`."""
    dtype = dtype_of(node.get("dtype")) if node.get("dtype") else node.value(0).dtype
    rows, columns = node.value(0).shape
    return np.eye(rows, columns, k=node.get("k", 0), dtype=dtype)


def _if(node: Node) -> list[Value]:
    """Builds `If`."""
    if node.run is None:
        raise node.unsupported("expected a node with graphs, got none")
    return node.run(node.get("then_branch" if bool(node.static(0).item()) else "else_branch"))


def _reverse_sequence(node: Node) -> Variable:
    """Builds `ReverseSequence`."""
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    x, lengths = node.x(), node.static(1)
    place = np.indices(x.shape)
    at = lengths.reshape([-1 if k == batch else 1 for k in range(x.ndim)])
    place[time] = np.where(place[time] < at, at - 1 - place[time], place[time])
    return F.gather_nd(x, _indices(place))


SHAPES: dict[tuple[str, str], Row] = {
    ("", "Concat"): Row(
        _concat,
        lambda node: np.concatenate([node.static(i) for i in range(len(node.inputs))], axis=node.get("axis", 1)),
        is_free=True,
    ),
    ("", "Constant"): Row(_constant, _constant),
    ("", "ConstantOfShape"): Row(_constant_of_shape, _constant_of_shape),
    ("", "DepthToSpace"): Row(_depth_to_space),
    ("", "Expand"): Row(
        lambda node: F.identity(expand(node.x(), _expanded(node))),
        lambda node: np.broadcast_to(node.static(0), _expanded(node)),
    ),
    ("", "EyeLike"): Row(_eye_like, _eye_like),
    ("", "Flatten"): _reshaping(_flattened),
    ("", "Gather"): Row(_gather, _fold_gather, is_free=True),
    ("", "GatherElements"): Row(
        _gather_elements,
        _fold_gather_elements,
    ),
    ("", "GatherND"): Row(_gather_nd, is_free=True),
    ("", "If"): Row(_if, _if),
    ("", "OneHot"): Row(_one_hot),
    ("", "Pad"): Row(_pad),
    ("", "Range"): Row(_range, _range),
    ("", "Reshape"): _reshaping(_target),
    ("", "ReverseSequence"): Row(_reverse_sequence),
    ("", "Scatter"): Row(_scatter_elements),
    ("", "ScatterElements"): Row(_scatter_elements),
    ("", "ScatterND"): Row(_scatter_nd),
    ("", "Shape"): Row(_shape, _shape),
    ("", "Size"): Row(lambda node: np.asarray(math.prod(node.value(0).shape), np.int64)),
    ("", "Slice"): Row(_slice, lambda node: node.static(0)[_slices(node)]),
    ("", "SpaceToDepth"): Row(_space_to_depth),
    ("", "Split"): Row(_split, _fold_split),
    ("", "Squeeze"): _reshaping(_squeezed),
    ("", "Tile"): Row(_tile, lambda node: np.tile(node.static(0), node.ints(1) or [])),
    ("", "Transpose"): Row(_transpose, lambda node: np.transpose(node.static(0), _axes(node)), is_free=True),
    ("", "Trilu"): Row(_trilu, _fold_trilu),
    ("", "Unsqueeze"): _reshaping(_unsqueezed),
}
"""One row for each operator."""
