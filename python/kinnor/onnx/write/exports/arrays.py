"""Functions on shapes and indices, reductions, and matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..writer import per

if TYPE_CHECKING:
    from ..writer import Call, Tensor

__all__ = ["ARRAYS", "powers"]


def _broadcast_to(c: Call) -> Tensor:
    """Writes `BroadcastTo` as ONNX nodes."""
    g, wide, shape = c.graph, c.shapes[0], c.shapes[1]
    axis = int(c.args["axis"])
    axis = len(wide) - len(shape) if axis < 0 else axis
    y = g.reshape(c.inputs[1], [*shape, *[1] * (len(wide) - axis - len(shape))])
    return g.op("Expand", y, g.op("Shape", c.inputs[0], dtype=np.int64))


def _broadcast(c: Call) -> Tensor:
    """Writes `Broadcast` as ONNX nodes."""
    x = c.inputs[0]
    n_missing = len(c.outputs[0]) - c.ndim
    x = c.graph.reshape(x, [*[1] * n_missing, *c.shape]) if n_missing else x
    return c.graph.expand(x, c.outputs[0])


def _tile(c: Call) -> Tensor:
    """Writes `Tile` as ONNX nodes."""
    g, reps = c.graph, list(c.args["reps"])
    n_missing = len(reps) - c.ndim
    x = g.reshape(c.inputs[0], [*[1] * n_missing, *c.shape]) if n_missing > 0 else c.inputs[0]
    return g.op("Tile", x, g.ints([1] * -n_missing + reps if n_missing < 0 else reps))


def _concatenate(c: Call) -> Tensor:
    """Writes `Concatenate` as ONNX nodes."""
    return c.graph.op("Concat", *(c.x(i) for i in range(len(c.inputs))), axis=c.axis())


def _stack(c: Call) -> Tensor:
    """Writes `Stack` as ONNX nodes."""
    axis = int(c.args["axis"]) % (c.ndim + 1)
    parts = [c.graph.unsqueeze(c.x(i), [axis]) for i in range(len(c.inputs))]
    return c.graph.op("Concat", *parts, axis=axis)


def _split(c: Call) -> list[Tensor]:
    """Writes `Split` as ONNX nodes."""
    axis = c.axis()
    parts = c.graph.split(c.inputs[0], axis, [1] * c.fixed(axis))
    return [c.graph.squeeze(part, [axis]) for part in parts]


def _slice(c: Call) -> Tensor:
    """Writes `Slice`. Indexing by a number also removes the axis."""
    y = _part(c)
    return y if len(c.outputs[0]) == c.ndim else c.graph.reshape(y, c.outputs[0])


def _part(c: Call) -> Tensor:
    """The slice of an array, with all axes."""
    g, x = c.graph, c.inputs[0]
    found = []
    for axis, length in enumerate(c.shape):
        start, stop, step = (c.args[key][axis] for key in ("start", "stop", "step"))
        if per(length):
            if (start, step) != (0, 1) or stop not in (None, int(length)):
                raise c.refused(f"all of axis {axis}, whose length is open")
            continue
        places = range(int(length))[slice(start, stop, step)]
        if len(places) == length and step == 1:
            continue
        if step != 1 and g.opset < 10:
            x = g.take(x, axis, places)
        elif len(places):
            # A negative end counts from the end of the axis, so index -1 needs a very negative number.
            end = places[-1] + (1 if step > 0 else -1)
            found.append((places[0], end if end >= 0 else -(2**62), axis, step))
        else:
            found.append((0, 0, axis, 1))
    if not found:
        return x
    starts, ends, axes, steps = (list(held) for held in zip(*found, strict=True))
    if g.opset < 10:
        return g.op("Slice", x, starts=starts, ends=ends, axes=axes)
    return g.op("Slice", x, *map(g.ints, (starts, ends, axes, steps)))


def _pad(c: Call) -> Tensor:
    """Writes `Pad` as ONNX nodes."""
    g, x, given, mode = c.graph, c.x(), list(c.args["pad_width"]), c.args["mode"]
    first = c.ndim - len(given) // 2
    widths = [(0, 0)] * first + list(zip(given[::2], given[1::2], strict=True))
    if mode == "constant":
        return g.pad(x, widths, value=float(c.args["constant_value"]))
    for axis, width in enumerate(widths):
        if any(width):
            places = np.arange(c.fixed(axis))
            places = np.pad(places, width, "reflect") if mode == "reflect" else np.pad(places, width, "edge")
            x = g.take(x, axis, places)
    return x


def _flip(c: Call) -> Tensor:
    """Writes `Flip` as ONNX nodes."""
    x = c.inputs[0]
    for axis in c.args["axes"]:
        x = c.graph.take(x, axis % c.ndim, range(c.fixed(axis))[::-1])
    return x


def _shift(c: Call) -> Tensor:
    """Writes `Shift` as ONNX nodes."""
    x, shifts = c.inputs[0], list(c.args["shifts"])
    for axis, by in zip(range(c.ndim - len(shifts), c.ndim), shifts, strict=True):
        if by:  # shifting the indices gives the source of each element
            places = Variable.from_numpy_array(np.arange(c.fixed(axis), dtype=np.float32))
            moved = F.shift(places, shifts=(by,), border_mode=c.args["border_mode"])
            moved.forward()
            x = c.graph.take(x, axis, moved.d)
    return x


def _unpooling(c: Call) -> Tensor:
    """Writes `Unpooling` as ONNX nodes."""
    x, kernel = c.inputs[0], list(c.args["kernel"])
    first = c.ndim - len(kernel) - int(bool(c.args["channel_last"]))
    for axis, times in enumerate(kernel, first):
        x = c.graph.take(x, axis, np.arange(c.fixed(axis)).repeat(times)) if times > 1 else x
    return x


def _where(c: Call) -> Tensor:
    """Writes `Where` as ONNX nodes."""
    g, condition = c.graph, c.truth(0)
    n_missing = len(c.shapes[1]) - c.ndim
    condition = g.reshape(condition, [*c.shape, *[1] * n_missing]) if n_missing > 0 else condition
    return g.op("Where", condition, c.x(1), c.x(2))


def _bool_fill(c: Call) -> Tensor:
    """Writes `BoolFill` as ONNX nodes."""
    return c.graph.op("Where", c.truth(1), c.graph.number(c.args["value"]), c.x(0))


# --- Places


def _one_hot(c: Call) -> Tensor:
    """Writes `OneHot` as ONNX nodes."""
    g, lengths = c.graph, [int(n) for n in c.args["shape"]]
    places, depth = c.places(0), math.prod(lengths)
    if len(lengths) > 1:
        split = g.split(places, c.ndim - 1, [1] * len(lengths))
        places = split[0]
        for part, length in zip(split[1:], lengths[1:], strict=True):
            places = g.op("Add", g.op("Mul", places, g.ints([length])), part)
    is_whole = c.ndim > 1 and len(lengths) == 1
    places = g.squeeze(places, [c.ndim - 1]) if is_whole else places
    y = g.op("OneHot", places, g.ints([depth]), g.constant([0, 1], np.float32), axis=-1, dtype=np.float32)
    return y if is_whole else g.reshape(y, c.outputs[0])


def _gather(c: Call) -> Tensor:
    """Writes `Gather` as ONNX nodes."""
    if c.args["batch_dims"]:
        raise c.refused(f"batch_dims of 0, got {c.args['batch_dims']}")
    return c.graph.op("Gather", c.inputs[0], c.places(1), axis=c.axis())


def _last(c: Call, i: int) -> Tensor:
    """Input `i`, indices with the index components on the first axis, with that axis last as in ONNX."""
    n = len(c.shapes[i])
    return c.graph.transpose(c.places(i), [*range(1, n), 0])


def _gather_nd(c: Call) -> Tensor:
    """Writes `GatherNd` as ONNX nodes."""
    c.needs(11)
    return c.graph.op("GatherND", c.inputs[0], _last(c, 1))


def _scatter_nd(c: Call) -> Tensor:
    """Writes `ScatterNd` as ONNX nodes."""
    c.needs(16 if c.args["add"] else 11)
    if len(c.inputs) > 2:
        raise c.refused("a shape, got an array to write to")
    zeros = c.graph.constant(np.zeros(c.args["shape"], np.float32))
    reduction = "add" if c.args["add"] else None
    return c.graph.op("ScatterND", zeros, _last(c, 1), c.x(0), reduction=reduction)


def _scatter_add(c: Call) -> Tensor:
    """Writes `ScatterAdd` as ONNX nodes."""
    c.needs(16)
    if c.shapes[1] != c.shapes[2]:
        raise c.refused("as many places as numbers")
    return c.graph.op("ScatterElements", c.x(0), c.places(1), c.x(2), axis=c.axis(), reduction="add")


def _top(c: Call, x: Tensor, k: int, axis: int, largest: bool) -> list[Tensor]:
    """The `k` largest or smallest elements along an axis, and their indices."""
    g = c.graph
    if g.opset < 10:
        y, places = g.ops("TopK", x if largest else g.op("Neg", x), n=2, k=k, axis=axis)
    elif g.opset < 11:
        y, places = g.ops("TopK", x if largest else g.op("Neg", x), g.ints([k]), n=2, axis=axis)
    else:
        y, places = g.ops("TopK", x, g.ints([k]), n=2, axis=axis, largest=int(largest))
    y = g.op("Neg", y) if not largest and g.opset < 11 else y
    return [y, places._replace(dtype=np.dtype(np.int64))]


def _by_flags(c: Call, made: list[Tensor]) -> list[Tensor]:
    """The requested ones of values and indices, by the arguments `with_index` and `only_index`."""
    return made[1:] if c.args["only_index"] else made if c.args["with_index"] else made[:1]


def _sort(c: Call) -> list[Tensor]:
    """Writes `Sort` as ONNX nodes."""
    axis = c.axis()
    return _by_flags(c, _top(c, c.x(), c.fixed(axis), axis, bool(c.args["reverse"])))


def _top_k(c: Call) -> list[Tensor]:
    """Writes `TopKData` as ONNX nodes."""
    g, base = c.graph, int(c.args["base_axis"]) % c.ndim
    c.needs(11)
    size = math.prod(c.shape[base:])
    flat = g.reshape(c.x(), [*c.shape[:base], size])
    y, places = _top(c, g.op("Abs", flat) if c.args["abs"] else flat, int(c.args["k"]), base, bool(c.args["largest"]))
    y = g.op("GatherElements", flat, places, axis=base) if c.args["abs"] else y
    if not c.args["reduce"]:
        zeros = g.op("Mul", g.op("Where", g.op("IsNaN", flat, dtype=np.bool_), g.number(0), flat), g.number(0))
        y = g.reshape(g.op("ScatterElements", zeros, places, y, axis=base), c.shape)
    return [y, places] if c.args["with_index"] else [y]


# --- Reductions


def _reduction(kind: str) -> Any:
    """A row for a reduction operator."""
    return lambda c: c.graph.reduce(kind, c.x(), [a % c.ndim for a in c.args["axes"]], bool(c.args["keep_dims"]))


def _extreme(kind: str) -> Any:
    """A row for `Max` or `Min`, with indices on request."""

    def row(c: Call) -> list[Tensor]:
        """Writes the reduction, and the index of the extreme element if it is requested."""
        g, x, axes, keep = c.graph, c.x(), [a % c.ndim for a in c.args["axes"]], bool(c.args["keep_dims"])
        y = g.reduce(f"Reduce{kind}", x, axes, keep)
        if not (c.args["with_index"] or c.args["only_index"]):
            return [y]
        if len(axes) != 1 and axes != list(range(c.ndim)):
            raise c.refused("one axis, or all, where places are wanted")
        if len(axes) != 1:
            flat = g.op("ArgMax" if kind == "Max" else "ArgMin", g.reshape(x, [-1]), dtype=np.int64, axis=0, keepdims=0)
            return _by_flags(c, [y, g.reshape(flat, c.outputs[0])])
        name = "ArgMax" if kind == "Max" else "ArgMin"
        return _by_flags(c, [y, g.op(name, x, dtype=np.int64, axis=axes[0], keepdims=int(keep))])

    return row


def powers(c: Call) -> tuple[Tensor, list[int], float]:
    """The summands `|x|^p` of a norm, its axes, and its order p.

    Args:
        c: The function.
    """
    g, p = c.graph, float(c.args["p"])
    x = c.x()
    power = g.op("Mul", x, x) if p == 2 else g.op("Abs", x) if p == 1 else g.op("Pow", g.op("Abs", x), g.number(p))
    return power, [axis % c.ndim for axis in c.args["axes"]], p


def _norm(c: Call) -> Tensor:
    """Writes `Norm` as ONNX nodes."""
    g, (power, axes, p) = c.graph, powers(c)
    total = g.reduce("ReduceSum", power, axes, bool(c.args["keep_dims"]))
    return total if p == 1 else g.op("Pow", total, g.number(1 / p))


def _cumsum(c: Call) -> Tensor:
    """Writes `CumSum` as ONNX nodes."""
    c.needs(11)
    axis = c.graph.constant(c.axis(), np.int64)
    return c.graph.op("CumSum", c.x(), axis, exclusive=int(c.args["exclusive"]), reverse=int(c.args["reverse"]))


# --- Matrices


def _eye(c: Call) -> Any:
    """The identity matrix of the size of the last axis."""
    return np.eye(c.fixed(c.ndim - 1), dtype=np.float32)


def _diagonal_part(c: Call) -> Tensor:
    """Writes `MatrixDiagPart` as ONNX nodes."""
    return c.graph.reduce("ReduceSum", c.graph.op("Mul", c.x(), c.graph.constant(_eye(c))), [c.ndim - 1], False)


def _trilu(c: Call) -> Tensor:
    """Writes `Trilu` as ONNX nodes."""
    g, k = c.graph, int(c.args["k"])
    ones = np.ones((c.fixed(c.ndim - 2), c.fixed(c.ndim - 1)), bool)
    kept = np.triu(ones, k) if c.args["upper"] else np.tril(ones, k)
    return g.op("Where", g.constant(kept), c.x(), g.number(0))


def _eye_like(c: Call) -> Tensor:
    """Writes `EyeLike` as ONNX nodes."""
    return c.graph.constant(np.eye(c.fixed(0), c.fixed(1), int(c.args["k"]), np.float32))


def _det(c: Call) -> Tensor:
    """Writes `BatchDet` as ONNX nodes."""
    c.needs(11)
    return c.graph.op("Det", c.x())


def _constant(c: Call) -> Tensor:
    """Writes `Constant` as ONNX nodes."""
    shape = c.outputs[0]
    if any(map(per, shape)):
        return c.graph.expand(c.graph.number(c.args["val"]), shape)
    return c.graph.constant(np.full(shape, c.args["val"], np.float32))


def _arange(c: Call) -> Tensor:
    """Writes `Arange` as ONNX nodes."""
    values = float(c.args["start"]) + float(c.args["step"]) * np.arange(int(c.outputs[0][0]))
    return c.graph.constant(values, np.float32)


def _linspace(c: Call) -> Tensor:
    """Writes `Linspace` as ONNX nodes."""
    return c.graph.constant(np.linspace(c.args["start"], c.args["stop"], int(c.args["num"])), np.float32)


def _shape(c: Call) -> Tensor:
    """Writes `Shape` as ONNX nodes."""
    g, start, end = c.graph, int(c.args["start"] or 0), c.args["end"]
    places = range(c.ndim)[start : end or None]
    return g.take(g.op("Shape", c.inputs[0], dtype=np.int64), 0, places)


ARRAYS: dict[str, Any] = {
    "Arange": _arange,
    "BatchDet": _det,
    "BoolFill": _bool_fill,
    "Broadcast": _broadcast,
    "BroadcastTo": _broadcast_to,
    "Concatenate": _concatenate,
    "Constant": _constant,
    "CumSum": _cumsum,
    "Embed": lambda c: c.graph.op("Gather", c.inputs[1], c.places(0), axis=0),
    "EyeLike": _eye_like,
    "Flip": _flip,
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "Linspace": _linspace,
    "MatrixDiag": lambda c: c.graph.op("Mul", c.graph.unsqueeze(c.x(), [c.ndim]), c.graph.constant(_eye(c))),
    "MatrixDiagPart": _diagonal_part,
    "Max": _extreme("Max"),
    "Mean": _reduction("ReduceMean"),
    "Min": _extreme("Min"),
    "Norm": _norm,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Prod": _reduction("ReduceProd"),
    "ReduceMean": lambda c: c.graph.reduce("ReduceMean", c.x(), list(range(c.ndim)), keepdims=False),
    "ReduceSum": lambda c: c.graph.reduce("ReduceSum", c.x(), list(range(c.ndim)), keepdims=False),
    "Reshape": lambda c: c.graph.reshape(c.inputs[0], c.outputs[0]),
    "ScatterAdd": _scatter_add,
    "ScatterNd": _scatter_nd,
    "Shape": _shape,
    "Shift": _shift,
    "Slice": _slice,
    "Sort": _sort,
    "Split": _split,
    "Stack": _stack,
    "Sum": _reduction("ReduceSum"),
    "Tile": _tile,
    "TopKData": _top_k,
    "Transpose": lambda c: c.graph.transpose(c.inputs[0], c.args["axes"]),
    "Trilu": _trilu,
    "Unpooling": _unpooling,
    "Where": _where,
}
"""One row for each type of function."""
