"""Recurrent operators: by a function for whole sequences, or step by step if no function fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..array_function import without_gradient
from ..values import Node, OnnxError, Row, Value, note_lengths, note_same
from .building import reshape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["ORDER", "RECURRENT"]

ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}
"""Order of ONNX's gates as indices into Kinnor's: i, o, f, c of i, f, g, o; z, r, h of r, z, n."""


def _part(x: Variable, axis: int, start: int, stop: int) -> Variable:
    """A slice of an axis."""
    low: list[int | None] = [None] * x.ndim
    high = low.copy()
    low[axis], high[axis] = start, stop
    return F.slice(x, low, high, [1] * x.ndim)


def _direction(x: Variable, k: int) -> Variable:
    """Element `k` of the first axis, the axis of directions. The next axis may get another length."""
    return F.reshape(_part(x, 0, k, k + 1), (-1, *x.shape[2:]), inplace=False)


def _times(x: Variable, w: Variable) -> Variable:
    """The product of `x` and the transpose of `w`."""
    return F.batch_matmul(x, w, transpose_b=True)


def _lstm(node: Node, h_size: int, peephole: Variable | None) -> Any:
    """The step function of an LSTM: from projected input, states, recurrent weight and bias to new states."""

    def step(px: Variable, h: Variable, c: Variable, r: Variable, rb: Variable | None) -> tuple[Variable, Variable]:
        """Returns the states after one step."""
        gates = px + _times(h, r)
        gates = gates if rb is None else gates + rb
        i, o, f, g = (_part(gates, 1, k * h_size, (k + 1) * h_size) for k in range(4))
        if peephole is not None:
            pi, po, pf = (_part(peephole, 0, k * h_size, (k + 1) * h_size) for k in range(3))
            i, f = i + pi * c, f + pf * c
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        o = o if peephole is None else o + po * c
        return F.sigmoid(o) * F.tanh(c), c

    return step


def _gru(node: Node, h_size: int) -> Any:
    """The step function of a GRU, with the arguments of the LSTM's."""

    def step(px: Variable, h: Variable, c: Variable, r: Variable, rb: Variable | None) -> tuple[Variable, Variable]:
        """Returns the state after one step, and `c` as it is."""
        first = _part(px, 1, 0, 2 * h_size) + _times(h, _part(r, 0, 0, 2 * h_size))
        first = first if rb is None else first + _part(rb, 1, 0, 2 * h_size)
        z, s = (F.sigmoid(_part(first, 1, k * h_size, (k + 1) * h_size)) for k in (0, 1))
        rest, weight = _part(px, 1, 2 * h_size, 3 * h_size), _part(r, 0, 2 * h_size, 3 * h_size)
        bias = None if rb is None else _part(rb, 1, 2 * h_size, 3 * h_size)
        if node.get("linear_before_reset", 0):
            inner = _times(h, weight)
            inner = s * (inner if bias is None else inner + bias)
        else:
            inner = _times(s * h, weight)
            inner = inner if bias is None else inner + bias
        return (1.0 - z) * F.tanh(rest + inner) + z * h, c

    return step


def _rnn(node: Node) -> Any:
    """The step function of a plain RNN, with the arguments of the LSTM's."""
    act = F.relu if "Relu" in (node.get("activations") or ()) else F.tanh

    def step(px: Variable, h: Variable, c: Variable, r: Variable, rb: Variable | None) -> tuple[Variable, Variable]:
        """Returns the state after one step, and `c` as it is."""
        y = px + _times(h, r)
        return act(y if rb is None else y + rb), c

    return step


def _recurrent(kind: str, n_gates: int) -> Callable[[Node], list[Variable]]:
    """The build function of a recurrent operator."""
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]

    def build(node: Node) -> list[Variable]:
        """Builds the node: as one layer if possible, else step by step."""
        x, w, r = node.x(0), node.x(1), node.x(2)
        if node.has(4) or any(node.has(i) and node.value(i).sources for i in (1, 2, 3, 7)):
            note_lengths()
        n_directions, size = w.shape[0], node.get("hidden_size", r.shape[-1])
        _check_activations(node, usual, ["Relu"] if kind == "RNN" else usual, n_directions)
        if node.get("layout", 0):
            x = F.transpose(x, (1, 0, 2))
        length, batch, n_in = x.shape
        if node.has(4) and not np.all(node.static(4) == length):
            return _by_length(node, build, length)[: 3 if kind == "LSTM" else 2]
        is_usual = kind == "RNN" or (not node.has(7) if kind == "LSTM" else bool(node.get("linear_before_reset", 0)))
        if is_usual and length:
            made = _in_layout(node, _by_layer(node, kind, x, size))
            if not any(node.has(i) and node.value(i).sources for i in (1, 2, 3, 7)):
                note_same(partial(_is_same, node.value(0).shape, bool(node.get("layout", 0))))
            return made
        note_lengths()
        outputs, last_h, last_c = [], [], []
        for k in range(n_directions):
            is_reverse, kept = node.get("direction", "forward") == "reverse" or k == 1, _direction(r, k)
            bias = None if not node.has(3) else _direction(node.x(3), k)
            wb = None if bias is None else _part(bias, 0, 0, n_gates * size)
            rb = (
                None
                if bias is None
                else reshape(_part(bias, 0, n_gates * size, 2 * n_gates * size), (1, n_gates * size))
            )
            h, c = (_state(node, i, k, batch, size) for i in (5, 6))
            if kind == "LSTM":
                peephole = _direction(node.x(7), k) if node.has(7) else None
                step = _lstm(node, size, peephole)
            else:
                step = _gru(node, size) if kind == "GRU" else _rnn(node)
            flat = F.affine(reshape(x, (length * batch, n_in)), F.transpose(_direction(w, k), (1, 0)), wb)
            steps = reshape(flat, (length, batch, n_gates * size))
            found: list[Variable] = []
            for t in reversed(range(length)) if is_reverse else range(length):
                px = reshape(_part(steps, 0, t, t + 1), (batch, n_gates * size))
                h, c = step(px, h, c, kept, rb)
                found.append(h)
            none = F.constant(0.0, (0, batch, size))
            outputs.append(F.stack(*(found[::-1] if is_reverse else found), axis=0) if found else none)
            last_h.append(h)
            last_c.append(c)
        ends = [F.stack(*last_h, axis=0), F.stack(*last_c, axis=0)]
        return _in_layout(node, [F.stack(*outputs, axis=1), *ends])[: 3 if kind == "LSTM" else 2]

    return build


def _is_same(shape: tuple[int, ...], is_batch_first: bool, inputs: Sequence[Value | None]) -> bool:
    """True if a layer makes the same functions of inputs as of sequences of another length, all of them whole.

    Args:
        shape: The shape of the sequences that it was built for.
        is_batch_first: True if the first axis is the batch.
        inputs: The inputs of the node.
    """
    x, lengths = inputs[0], inputs[4] if len(inputs) > 4 else None
    if x is None or x.shape[2] != shape[2] or x.shape[not is_batch_first] != shape[not is_batch_first]:
        return False
    n = x.shape[is_batch_first]
    return n > 0 and (lengths is None or (lengths.known and bool((lengths.static() == n).all())))


def _check_activations(node: Node, usual: list[str], other: list[str], n_directions: int) -> None:
    """Refuses activations that are not the usual ones, and clipping."""
    given = node.get("activations")
    if (given and given not in (usual * n_directions, other * n_directions)) or node.get("clip") is not None:
        raise node.unsupported("expected the usual activations without clip, got others")
    if node.get("input_forget", 0):
        raise node.unsupported("expected input_forget to be 0, got 1")


def _by_length(node: Node, build: Callable[[Node], list[Variable]], length: int) -> list[Variable]:
    """Returns the outputs for sequences of different lengths. Sequences of one length are computed together."""
    lengths = node.static(4).astype(np.int64).ravel()
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= length:
        raise OnnxError(f"{node.operator}: expected lengths from 0 to {length}, got {lengths.tolist()}")
    batch_axis, time_axis, state_axis = (0, 1, 0) if node.get("layout", 0) else (1, 0, 1)
    rows: list[NDArray[Any]] = []
    parts: list[list[Variable]] = []
    for steps in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == steps)
        rows.append(chosen)
        x = F.slice(_places_of_axis(node.x(0), chosen, batch_axis), *_first(node.x(0), steps, time_axis, len(chosen)))
        given = [Value(x), *node.inputs[1:4], None]
        given += [Value(_places_of_axis(node.x(i), chosen, state_axis)) if node.has(i) else None for i in (5, 6)]
        made = build(Node(node.proto, node.domain, node.attributes, [*given, *node.inputs[7:]], node.version))
        axis = 1 if node.get("layout", 0) else 0
        widths = [0] * (2 * made[0].ndim)
        widths[2 * axis + 1] = length - steps
        parts.append([F.pad(made[0], widths, "constant", 0.0), *made[1:]])
    order = np.argsort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
    outputs = []
    for k, pieces in enumerate(zip(*parts, strict=True)):
        axis = 0 if node.get("layout", 0) else 2 if k == 0 else 1
        outputs.append(_places_of_axis(F.concatenate(*pieces, axis=axis), order, axis))
    return outputs


def _places_of_axis(x: Variable, places: NDArray[Any], axis: int) -> Variable:
    """Returns places of an axis."""
    return F.gather(x, Variable.from_numpy_array(places.astype(np.int64)), axis=axis)


def _first(x: Variable, n: int, axis: int, n_rows: int) -> tuple[list[int], list[int], list[int]]:
    """Returns what `slice` takes for the first places of an axis of an array with fewer rows."""
    high = [n_rows] * 3
    high[axis], high[2] = n, x.shape[2]
    return [0] * 3, high, [1] * 3


def _in_layout(node: Node, made: list[Variable]) -> list[Variable]:
    """The output and the final states in the axis order of the node's attribute `layout`."""
    if not node.get("layout", 0):
        return made
    return [F.transpose(made[0], (2, 0, 1, 3)), *(F.transpose(end, (1, 0, 2)) for end in made[1:])]


def _by_layer(node: Node, kind: str, x: Variable, size: int) -> list[Variable]:
    """The outputs by `F.lstm`, `F.gru` or `F.rnn`, after reordering weights and gates."""
    (_, batch, n_in), n_directions = x.shape, node.x(1).shape[0]
    order = np.argsort(ORDER[kind])
    gates = (n_directions, len(order), size)

    def ours(held: Variable) -> Variable:
        """Gates in Kinnor's order."""
        return held if kind == "RNN" else F.gather(held, Variable.from_numpy_array(order), axis=1)

    w = F.concatenate(reshape(node.x(1), (*gates, n_in)), reshape(node.x(2), (*gates, size)), axis=3)
    bias = None
    if node.has(3):
        first, second = (
            ours(reshape(_part(node.x(3), 1, k * gates[1] * size, (k + 1) * gates[1] * size), gates)) for k in (0, 1)
        )
        bias = first + second
        if kind == "GRU":
            bias = F.concatenate(_part(bias, 1, 0, 2), _part(first, 1, 2, 3), _part(second, 1, 2, 3), axis=1)
    w, bias = ours(w), None if bias is None else reshape(bias, (1, *bias.shape))
    if kind == "RNN":
        w, bias = (
            reshape(w, (n_directions, *w.shape[2:])),
            None if bias is None else reshape(bias, (1, n_directions, size)),
        )
    places = [5, 6] if kind == "LSTM" else [5]
    ends = [F.stack(*(_state(node, i, k, batch, size) for k in range(n_directions)), axis=0) for i in places]
    states = [F.stack(end, axis=0) for end in ends]
    is_reverse = node.get("direction", "forward") == "reverse"
    arguments: dict[str, Any] = {"num_layers": 1, "bidirectional": n_directions == 2, "training": True}
    if kind == "RNN":
        arguments["nonlinearity"] = "relu" if "Relu" in (node.get("activations") or ()) else "tanh"
    function: Any = {"LSTM": F.lstm, "GRU": F.gru, "RNN": F.rnn}[kind]
    y, *ends = function(F.flip(x, (0,)) if is_reverse else x, *states, w, None, bias, **arguments)
    y = F.flip(y, (0,)) if is_reverse else y
    y = F.stack(*(_part(y, 2, k * size, (k + 1) * size) for k in range(n_directions)), axis=1)
    return [y, *(F.reshape(end, (n_directions, -1, size), inplace=False) for end in ends)]


def _state(node: Node, i: int, k: int, batch: int, size: int) -> Variable:
    """The initial state of direction `k`: input `i`, or zeros."""
    if not node.has(i):
        note_lengths()
        return Variable.from_numpy_array(np.zeros((batch, size), np.float32))
    held = F.transpose(node.x(i), (1, 0, 2)) if node.get("layout", 0) else node.x(i)
    return _direction(held, k)


def _level_weight(node: Node, i: int, scale: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns a weight of 8-bit levels as signed levels, their zero points and their scales."""
    weight, factor = node.static(i), node.static(scale).astype(np.float32)
    n, is_signed = len(weight), weight.dtype == np.int8
    shift = 0 if is_signed else 128
    zero = node.static(scale + 1).astype(np.int64) if node.has(scale + 1) else np.full(n, shift)
    shape = (n, 1, weight.shape[2])
    return (
        weight if is_signed else (weight ^ np.uint8(shift)).view(np.int8),
        np.broadcast_to(zero.reshape(n, 1, -1) - shift, shape),
        np.broadcast_to(factor.reshape(n, 1, -1), shape),
    )


def _level_weights(node: Node) -> list[Variable | None]:
    """Returns weight, zero points, scales, bias and peepholes as `quantized_lstm` reads them."""
    parts = zip(_level_weight(node, 1, 8), _level_weight(node, 2, 10), strict=True)
    held: list[NDArray[Any] | None] = [np.concatenate(both, axis=1) for both in parts]
    n = 4 * node.value(2).shape[1]
    held.append((node.static(3)[:, :n] + node.static(3)[:, n:]).astype(np.float32) if node.has(3) else None)
    held.append(node.static(7).astype(np.float32) if node.has(7) else None)
    return [None if array is None else Variable.from_numpy_array(np.ascontiguousarray(array)) for array in held]


def _renewed(lengths: Variable, inputs: Sequence[Value | None]) -> bool:
    """Stores the number of steps of another first input as lengths of sequences. True if it has as many sequences."""
    x = inputs[0]
    if x is None or x.shape[1:2] != lengths.shape:
        return False
    lengths.d = np.full(lengths.shape, x.shape[0])
    return True


def _quantized_lstm(node: Node) -> list[Value]:
    """Builds `DynamicQuantizeLSTM`."""
    length, batch, _ = node.value(0).shape
    n, size = node.value(2).shape[:2]
    _check_activations(node, ["Sigmoid", "Tanh", "Tanh"], ["Sigmoid", "Tanh", "Tanh"], n)
    is_constant = all(value is None or value.known for value in (*node.inputs[1:4], *node.inputs[7:]))
    make = partial(_level_weights, node)
    weight, zero, scale, bias, peephole = node.once("weights", make) if is_constant else make()
    lengths = node.x(4) if node.has(4) else Variable.from_numpy_array(np.full(batch, length))
    if is_constant and not node.has(4):
        note_same(partial(_renewed, lengths))
    h, c = (node.x(i) if node.has(i) else Value(np.zeros((n, batch, size), np.float32)).variable for i in (5, 6))
    is_reverse = node.get("direction", "forward") == "reverse"
    function: Any = F.quantized_lstm
    found = function(node.x(0), h, c, weight, zero, scale, lengths, bias, peephole, reverse=is_reverse)
    return without_gradient(node.operator, found, [value for value in node.inputs if value is not None])


RECURRENT: dict[tuple[str, str], Row] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): Row(_quantized_lstm),
    ("", "GRU"): Row(_recurrent("GRU", 3), is_free=True),
    ("", "LSTM"): Row(_recurrent("LSTM", 4), is_free=True),
    ("", "RNN"): Row(_recurrent("RNN", 1), is_free=True),
}
"""One row for each operator."""
