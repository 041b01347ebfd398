"""Rows of recurrent networks, packed sequences and attention."""

from __future__ import annotations

import numpy as np
from scipy import special

from . import Row, sample

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
"""Number of gates of each kind of cell."""
sigmoid = special.expit


def step(kind, x, h, c, w, b, nonlinearity):
    """Returns the new state and cell of one direction of one layer after one time step."""
    n = x.shape[1]
    sums = [x @ each[:, :n].T for each in w]
    own = [h @ each[:, n:].T for each in w]
    bias = b if b is not None else np.zeros((4, h.shape[1]))
    if kind == "gru":
        r, z = (sigmoid(sums[i] + own[i] + bias[i]) for i in range(2))
        new = np.tanh(sums[2] + bias[2] + r * (own[2] + bias[3]))
        return (1 - z) * new + z * h, None
    a = [s + o + each for s, o, each in zip(sums, own, bias, strict=False)]
    if kind == "rnn":
        return (np.tanh(a[0]) if nonlinearity == "tanh" else np.maximum(a[0], 0)), None
    c = sigmoid(a[1]) * c + sigmoid(a[0]) * np.tanh(a[2])
    return sigmoid(a[3]) * np.tanh(c), c


def network(kind):
    """Returns the reference of `rnn`, `gru` or `lstm`."""

    def reference(x, h, *rest, num_layers=1, nonlinearity="tanh", dropout=0.0, bidirectional=False, training=True):
        """NumPy reference of the network."""
        cells, rest = (rest[0], rest[1:]) if kind == "lstm" else (None, rest)
        first, later, bias = (*rest, None, None)[:3]
        ends, cell_ends = np.zeros_like(h), np.zeros_like(h)
        for layer in range(num_layers):
            outputs = []
            for d in range(2 if bidirectional else 1):
                w = first[d] if layer == 0 else later[layer - 1, d]
                w = w[None] if kind == "rnn" else w
                b = None if bias is None else bias[layer, d].reshape(-1, h.shape[3])
                state, cell = h[layer, d], None if cells is None else cells[layer, d]
                y = [None] * len(x)
                for t in range(len(x))[:: -1 if d else 1]:
                    state, cell = step(kind, x[t], state, cell, w, b, nonlinearity)
                    y[t] = state
                ends[layer, d] = state
                if cell is not None:
                    cell_ends[layer, d] = cell
                outputs.append(np.stack(y) if y else np.zeros((0, *state.shape)))
            x = np.concatenate(outputs, 2)
        return (x, ends, cell_ends) if kind == "lstm" else (x, ends)

    return reference


def recurrent(kind, size=(3, 2, 3, 2), layers=1, directions=1, bias=True, **args):
    """Returns a row of a recurrent network. `size` is (time steps, batch, inputs, state)."""
    steps, batch, inputs, hidden = size
    gates = () if kind == "rnn" else (GATES[kind],)
    biases = () if kind == "rnn" else (4,)
    states = tuple(
        sample(layers, directions, batch, hidden, seed=s, low=-1, high=1) for s in range(1 + (kind == "lstm"))
    )
    later = None
    if layers > 1:
        later = sample(layers - 1, directions, *gates, hidden, (directions + 1) * hidden, seed=4, low=-1, high=1)
    given = {**({"num_layers": layers} if layers > 1 else {}), **({"bidirectional": True} if directions > 1 else {})}
    return Row(
        kind,
        (
            sample(steps, batch, inputs),
            *states,
            sample(directions, *gates, hidden, inputs + hidden, seed=3, low=-1, high=1),
            later,
            sample(layers, directions, *biases, hidden, seed=5, low=-1, high=1) if bias else None,
        ),
        network(kind),
        {**given, **args},
        tolerance=5e-6,
    )


def packed(padded_sequence, lengths, batch_first=False):
    """NumPy reference of `pack_padded_sequence`."""
    x = padded_sequence.swapaxes(0, 1) if batch_first else padded_sequence
    sizes = np.array([(lengths > t).sum() for t in range(len(x))], np.int64)
    rows = [x[t, :n] for t, n in enumerate(sizes)]
    return np.concatenate(rows) if rows else np.zeros((0, *x.shape[2:])), sizes


def padded(packed_sequence, batch_sizes, batch_first=False, padding_value=None, total_length=None):
    """NumPy reference of `pad_packed_sequence`."""
    steps = len(batch_sizes) if total_length is None or total_length < 0 else total_length
    y = np.full((steps, batch_sizes.max(initial=0), *packed_sequence.shape[1:]), padding_value or 0.0)
    at = np.cumsum([0, *batch_sizes])
    for t, n in enumerate(batch_sizes):
        y[t, :n] = packed_sequence[at[t] : at[t + 1]]
    lengths = np.array([(batch_sizes > b).sum() for b in range(y.shape[1])], np.int64)
    return (y.swapaxes(0, 1) if batch_first else y), lengths


def attention(query, key, value, mask=None, causal=False, dropout=0.0, scale=None, seed=-1):
    """NumPy reference of `scaled_dot_product_attention`."""
    products = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    products = products if mask is None else products + mask
    if causal:
        products = np.where(np.tri(*products.shape[-2:], dtype=bool), products, -np.inf)
    return special.softmax(products, -1) @ value


def heads(batch, queries, keys, width, depth):
    """Returns random query (batch, queries, width), key (batch, keys, width) and value (batch, keys, depth)."""
    return sample(*batch, queries, width), sample(*batch, keys, width, seed=1), sample(*batch, keys, depth, seed=2)


def hidden(*shape):
    """Returns a mask that hides some keys but never the first."""
    x = sample(*shape, seed=3)
    return np.where((x > 1) & (np.arange(shape[-1]) > 0), -np.inf, x)


ROWS: list[Row] = [
    *(
        row
        for kind in GATES
        for row in (
            recurrent(kind),
            recurrent(kind, bias=False),
            recurrent(kind, layers=2, directions=2, training=True),
            recurrent(kind, size=(2, 1, 1, 3), layers=3, dropout=0.0, bias=False),
            recurrent(kind, size=(1, 1, 1, 1)),
            recurrent(kind, size=(2, 3, 2, 35), directions=2) if kind == "gru" else recurrent(kind, size=(2, 3, 0, 2)),
        )
    ),
    recurrent("rnn", nonlinearity="relu", layers=2),
    recurrent("lstm", size=(0, 2, 3, 2)),
    recurrent("gru", size=(2, 0, 3, 2)),
    *(
        Row("pack_padded_sequence", (x, np.array(lengths)), packed, args)
        for x, lengths, args in (
            (sample(4, 3, 2), [4, 2, 1], {}),
            (sample(3, 5), [3, 3, 2], {"batch_first": True}),
            (sample(4, 2), [2, 0], {}),
            (sample(1, 1, 1), [1], {}),
            (sample(3, 0, 2), np.zeros(0, np.int64), {}),
        )
    ),
    *(
        Row("pad_packed_sequence", (x, np.array(sizes)), padded, args)
        for x, sizes, args in (
            (sample(7, 2), [3, 2, 1, 1], {}),
            (sample(5), [3, 2], {"batch_first": True, "padding_value": -1.5}),
            (sample(5, 1), [3, 2], {"total_length": 4, "padding_value": 2.0}),
            (sample(1, 1), [1], {"total_length": -1}),
            (sample(0, 2), np.zeros(0, np.int64), {}),
        )
    ),
    *(
        Row("scaled_dot_product_attention", (*heads(*sizes), *masks), attention, args, tolerance=5e-6)
        for sizes, masks, args in (
            (((2, 2), 3, 4, 3, 2), (), {}),
            (((2,), 4, 4, 3, 3), (), {"causal": True}),
            (((), 3, 5, 2, 3), (), {"causal": True, "scale": 0.7}),
            (((2, 2), 3, 4, 3, 2), (sample(2, 1, 1, 4, seed=5),), {}),
            (((2, 2), 3, 4, 3, 2), (sample(3, 4, seed=5),), {"scale": -0.5}),
            (((2,), 3, 4, 3, 2), (sample(2, 3, 1, seed=5),), {"dropout": 0.0, "seed": 4}),
            (((1,), 1, 1, 1, 1), (), {}),
            (((0,), 3, 2, 2, 2), (), {}),
            (((2,), 0, 2, 2, 2), (), {}),
        )
    ),
    *(
        Row("scaled_dot_product_attention", (*heads(*sizes), *masks), attention, args, by=(0, 1, 2), tolerance=2e-5)
        for sizes, masks, args in ((((2, 2), 3, 4, 3, 2), (hidden(2, 1, 3, 4),), {}),)
    ),
]
