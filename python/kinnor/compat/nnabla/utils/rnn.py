"""The packed sequences of `kinnor.utils.rnn`, and recurrent layers unrolled over the time steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinnor import functions as F
from kinnor.compat.utils import rnn as ours
from kinnor.compat.utils.rnn import *  # noqa: F403

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinnor import Variable

    Cell = Callable[[Variable, tuple[Variable, ...], Variable, Variable | None], tuple[Variable, ...]]

__all__ = list(ours.__all__)


def _sum(inputs: Sequence[Variable], weight: Variable, bias: Variable | None) -> Variable:
    """Affine transformation of the concatenated inputs; weight of shape (outputs, inputs)."""
    y = F.batch_matmul(F.concatenate(*inputs, axis=1), weight, transpose_b=True)
    return y if bias is None else y + F.reshape(bias, (1, bias.size))


def _unrolled(
    x: Variable,
    states: tuple[Variable, ...],
    first: Variable,
    weight: Variable | None,
    bias: Variable | None,
    cell: Cell,
) -> tuple[Variable, ...]:
    """Outputs of all steps, and the last states, each of shape (layers, directions, batch, hidden)."""
    layers, directions = states[0].shape[:2]
    steps = [x[t] for t in range(x.shape[0])]
    last: list[tuple[Variable, ...]] = []
    for layer in range(layers):
        found = []
        for direction in range(directions):
            own = first[direction] if weight is None or layer == 0 else weight[layer - 1, direction]
            state = tuple(each[layer, direction] for each in states)
            made = []
            for step in reversed(steps) if direction else steps:
                state = cell(step, state, own, None if bias is None else bias[layer, direction])
                made.append(state[0])
            found.append(made[::-1] if direction else made)
            last.append(state)
        steps = [F.concatenate(*each, axis=1) if directions > 1 else each[0] for each in zip(*found, strict=True)]
    ends = (F.reshape(F.stack(*each), states[0].shape) for each in zip(*last, strict=True))
    return F.stack(*steps), *ends


def _create_fixed_length_rnn(
    xs0: Variable,
    h0: Variable,
    w0: Variable,
    w: Variable | None,
    b: Variable | None,
    num_layers: int,
    nonlinearity: str,
    num_directions: int,
    with_bias: bool,
) -> tuple[Variable, ...]:
    """The outputs and the last state of `rnn`."""
    activation: Callable[..., Variable] = F.relu if nonlinearity == "relu" else F.tanh

    def cell(x: Variable, state: tuple[Variable, ...], weight: Variable, bias: Variable | None) -> tuple[Variable, ...]:
        """One time step. Returns the new state."""
        return (activation(_sum((x, *state), weight, bias)),)

    return _unrolled(xs0, (h0,), w0, w, b if with_bias else None, cell)


def _create_fixed_length_gru(
    xs0: Variable,
    h0: Variable,
    w0: Variable,
    w: Variable | None,
    b: Variable | None,
    num_layers: int,
    num_directions: int,
    with_bias: bool,
) -> tuple[Variable, ...]:
    """The outputs and the last state of `gru`."""

    def cell(x: Variable, state: tuple[Variable, ...], weight: Variable, bias: Variable | None) -> tuple[Variable, ...]:
        """One time step. Returns the new state."""
        (h,), n = state, x.shape[1]
        biases = [None] * 4 if bias is None else [bias[i] for i in range(4)]
        reset, keep = (F.sigmoid(_sum((x, h), weight[i], biases[i])) for i in range(2))
        new = F.tanh(_sum((x,), weight[2, :, :n], biases[2]) + reset * _sum((h,), weight[2, :, n:], biases[3]))
        return ((1.0 - keep) * new + keep * h,)

    return _unrolled(xs0, (h0,), w0, w, b if with_bias else None, cell)


def _create_fixed_length_lstm(
    xs0: Variable,
    h0: Variable,
    c0: Variable,
    w0: Variable,
    w: Variable | None,
    b: Variable | None,
    num_layers: int,
    num_directions: int,
    with_bias: bool,
) -> tuple[Variable, ...]:
    """The outputs and the last states of `lstm`."""

    def cell(x: Variable, state: tuple[Variable, ...], weight: Variable, bias: Variable | None) -> tuple[Variable, ...]:
        """One time step. Returns the new state and cell."""
        h, c = state
        sums = [_sum((x, h), weight[i], None if bias is None else bias[i]) for i in range(4)]
        c = F.sigmoid(sums[1]) * c + F.sigmoid(sums[0]) * F.tanh(sums[2])
        return F.sigmoid(sums[3]) * F.tanh(c), c

    return _unrolled(xs0, (h0, c0), w0, w, b if with_bias else None, cell)
