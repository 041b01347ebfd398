"""Recurrent functions, written as one node for each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...read.tables.recurrent import ORDER

if TYPE_CHECKING:
    from ..writer import Call, Tensor

__all__ = ["RECURRENT"]


def _layer(x: Tensor, axis: int, k: int, c: Call) -> Tensor:
    """Element `k` of an axis, without the axis."""
    return c.graph.squeeze(c.graph.part(x, axis, k, k + 1), [axis])


def _recurrent(c: Call) -> list[Tensor]:
    """Writes `GRU`, `LSTM` and `RNN` as ONNX nodes."""
    g, kind = c.graph, c.kind
    order, n_states = ORDER[kind], 2 if kind == "LSTM" else 1
    n_layers, n_directions, hidden = int(c.args["num_layers"]), 1 + bool(c.args["bidirectional"]), int(c.shapes[1][-1])
    n_gates = len(order)
    first = 1 + n_states
    later = c.x(first + 1) if n_layers > 1 else None
    bias = c.optional(first + 1 + (n_layers > 1))
    x, ends = c.x(), []
    for k in range(n_layers):
        shape = list(c.shapes[first] if k == 0 else c.shapes[first + 1][1:])
        n_in = int(shape[-1]) - hidden
        w = c.x(first) if later is None or k == 0 else _layer(later, 0, k - 1, c)
        w = g.take(w, 1, order) if kind != "RNN" else w
        taken = g.part(w, len(shape) - 1, 0, n_in)
        kept = g.part(w, len(shape) - 1, n_in, n_in + hidden)
        states = [_layer(c.x(1 + i), 0, k, c) for i in range(n_states)]
        attributes: dict[str, Any] = {"hidden_size": hidden}
        if n_directions > 1:
            attributes["direction"] = "bidirectional"
        if kind == "GRU":
            attributes["linear_before_reset"] = 1
        if kind == "RNN":
            attributes["activations"] = [c.args["nonlinearity"].capitalize()] * n_directions
        made = g.ops(
            kind,
            x,
            g.reshape(taken, [n_directions, n_gates * hidden, n_in]),
            g.reshape(kept, [n_directions, n_gates * hidden, hidden]),
            None if bias is None else _bias(c, bias, k, n_directions, hidden),
            None,
            *states,
            n=1 + n_states,
            **attributes,
        )
        y = g.transpose(made[0], [0, 2, 1, 3])
        x = g.op("Reshape", y, g.ints([0, 0, n_directions * hidden]))
        ends.append([g.unsqueeze(end, [0]) for end in made[1:]])
    stacked = [g.op("Concat", *held, axis=0) if n_layers > 1 else held[0] for held in zip(*ends, strict=True)]
    return [x, *stacked]


def _bias(c: Call, bias: Tensor, k: int, n_directions: int, hidden: int) -> Tensor:
    """The bias of layer `k` in ONNX's form: input biases, then state biases."""
    g, order = c.graph, ORDER[c.kind]
    held = _layer(bias, 0, k, c)
    n = len(order) * hidden
    if c.kind == "RNN":
        zeros = g.constant(np.zeros((n_directions, n), np.float32))
        return g.op("Concat", held, zeros, axis=1)
    first = g.reshape(g.take(held, 1, order), [n_directions, n])
    if c.kind == "LSTM":
        return g.op("Concat", first, g.constant(np.zeros((n_directions, n), np.float32)), axis=1)
    zeros = g.constant(np.zeros((n_directions, 2 * hidden), np.float32))
    second = g.reshape(g.part(held, 1, 3, 4), [n_directions, hidden])
    return g.op("Concat", first, zeros, second, axis=1)


RECURRENT: dict[str, Any] = {"GRU": _recurrent, "LSTM": _recurrent, "RNN": _recurrent}
"""One row for each type of function."""
