"""Recurrent layers: a cell for a single step, and stacked layers over whole sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import functions as F
from .._check import arrays, text
from .._core import RangeError, ShapeError, Variable
from ..initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ..parameter import get_parameter_or_create
from ..parameter.tree import here
from .arguments import check_input, sizes
from .decorator import parametric_function_api
from .layers import affine

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray

    from ..initializer import Initializer

__all__ = ["LSTMCell", "gru", "lstm", "lstm_cell", "rnn"]


@parametric_function_api(
    "lstm",
    [
        (
            "affine/W",
            "Weight of input, output and forget gate and of the candidate",
            "(inputs + state_size, 4, state_size)",
            True,
        ),
        ("affine/b", "Bias", "(4, state_size)", True),
    ],
)
def lstm_cell(
    x: Variable,
    h: Variable,
    c: Variable,
    state_size: int,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of a long short-term memory: `c' = f c + i g`, `h' = o tanh(c')`.

    The gates `i, f, o` are sigmoids, the candidate `g` is a tanh, all of an affine transformation of `x` and `h`.

    Args:
        x: Input, shape (batch, inputs).
        h: Hidden state, shape (batch, state_size).
        c: Cell state, shape (batch, state_size).
        state_size: Size of the state.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        The next hidden state and the next cell state.

    Source:
        Hochreiter, Schmidhuber: Long short-term memory, 1997; with the forget gate of Gers et al., 2000.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x, h, c = nn.Variable((2, 3)), nn.Variable((2, 4)), nn.Variable((2, 4))
        >>> h, c = PF.lstm_cell(x, h, c, state_size=4, name="demo-lstm-cell")
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """
    for value in (x, h, c):
        check_input("lstm_cell", value, min_ndim=2)
    (state_size,) = sizes("lstm_cell", "state_size", state_size, single=True)
    for what, state in (("h", h), ("c", c)):
        if state.shape != (x.shape[0], state_size):
            raise ShapeError(
                f"lstm_cell: expected `{what}` of shape {(x.shape[0], state_size)}, as `x` of shape {x.shape} and "
                f"`state_size` {state_size} ask for, got shape {state.shape}"
            )
    gates = affine(
        F.concatenate(x, h, axis=1), (4, state_size), w_init=w_init, b_init=b_init, fix_parameters=fix_parameters
    )
    i, o, f, g = F.split(gates, axis=1)
    next_c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(next_c), next_c


class LSTMCell:
    """An LSTM cell that stores its state between steps.

    Args:
        batch_size: Number of sequences.
        state_size: Size of the state.
        h: Hidden state to start from, shape (batch_size, state_size); zeros by default.
        c: Cell state to start from, of the same shape; zeros by default.
        name: Name of an outer scope for the parameters.

    Attributes:
        h: Hidden state after the last step.
        c: Cell state after the last step.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> cell = PF.LSTMCell(batch_size=2, state_size=4, name="demo-cell")
        >>> x = nn.Variable((2, 3))
        >>> for _ in range(5):
        ...     h = cell(x)
        >>> h.shape
        (2, 4)
    """

    def __init__(
        self,
        batch_size: int,
        state_size: int,
        h: Variable | None = None,
        c: Variable | None = None,
        name: str | None = None,
    ) -> None:
        shape = sizes("LSTMCell", "(batch_size, state_size)", (batch_size, state_size))
        self.batch_size, self.state_size = shape
        self.name = None if name is None else text("LSTMCell", "name", name)
        self.h = _state("h", h, shape)
        self.c = _state("c", c, shape)

    def __call__(
        self,
        x: Variable,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        fix_parameters: bool = False,
    ) -> Variable:
        """Run one step, and store the new state.

        Args:
            x: Input, shape (batch_size, inputs).
            w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
            b_init: Initial bias; by default zeros.
            fix_parameters: Whether to use the parameters without a gradient.

        Returns:
            The next hidden state, shape (batch_size, state_size).
        """
        self.h, self.c = lstm_cell(x, self.h, self.c, self.state_size, w_init, b_init, fix_parameters, name=self.name)
        return self.h

    def reset_state(self) -> None:
        """Set both states to zero."""
        self.h.data.zero()
        self.c.data.zero()


def _state(what: str, given: Variable | None, shape: tuple[int, ...]) -> Variable:
    """The initial state: a given variable of this shape, or zeros."""
    if given is None:
        zeros = Variable(shape)
        zeros.data.zero()
        return zeros
    arrays("LSTMCell", **{what: given})
    if given.shape != shape:
        raise ShapeError(f"LSTMCell: expected `{what}` of shape {shape}, got shape {given.shape}")
    return given


@parametric_function_api(
    "rnn",
    [
        ("weight_l0", "Weight of the first layer", "(D, H, inputs + H)", True),
        ("weight", "Weight of the other layers", "(L - 1, D, H, D * H + H)", True),
        ("bias", "Bias", "(L, D, H)", True),
    ],
)
def rnn(
    x: Variable,
    h: Variable,
    w0_init: Initializer | None = None,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    num_layers: int = 1,
    nonlinearity: str = "tanh",
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomState | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Recurrent layers over a sequence: `h' = f(W [x, h] + b)` at each step of each of the L layers.

    Args:
        x: Sequence, shape (steps, batch, inputs).
        h: First states, shape (L, D, batch, H), where D is 2 with `bidirectional` and 1 without.
        w0_init: Initial weight of the first layer; by default uniform, `calc_uniform_lim_glorot`.
        w_init: Initial weight of the other layers; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        num_layers: No effect: the shape of `h` determines it.
        nonlinearity: The function `f`: `tanh` or `relu`.
        dropout: Probability of dropout between layers.
        bidirectional: Whether each layer also runs over the reversed sequence.
        training: Whether to apply dropout and to save values for gradients.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (steps, batch, D * H), and last states, shape of `h`.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x, h = nn.Variable((5, 2, 3)), nn.Variable((1, 1, 2, 4))
        >>> y, last = PF.rnn(x, h, name="demo-rnn")
        >>> y.shape, last.shape
        ((5, 2, 4), (1, 1, 2, 4))
    """
    stack = Stack("rnn", x, h, bidirectional, gates=None)
    w0, w, b = stack.parameters(w0_init, w_init, b_init, rng, with_bias, fix_parameters)
    found: tuple[Variable, Variable] = F.rnn(
        x, h, w0, w, b, stack.layers, nonlinearity, dropout, bidirectional, training
    )
    return found


@parametric_function_api(
    "lstm",
    [
        ("weight_l0", "Weight of the first layer", "(D, 4, H, inputs + H)", True),
        ("weight", "Weight of the other layers", "(L - 1, D, 4, H, D * H + H)", True),
        ("bias", "Bias", "(L, D, 4, H)", True),
    ],
)
def lstm(
    x: Variable,
    h: Variable,
    c: Variable,
    w0_init: Initializer | None = None,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    num_layers: int = 1,
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomState | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Long short-term memories over a sequence, in L layers; `lstm_cell` is one step of one.

    Args:
        x: Sequence, shape (steps, batch, inputs).
        h: First hidden states, shape (L, D, batch, H), where D is 2 with `bidirectional` and 1 without.
        c: First cell states, shape of `h`.
        w0_init: Initial weight of the first layer; by default uniform, `calc_uniform_lim_glorot`.
        w_init: Initial weight of the other layers; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        num_layers: No effect: the shape of `h` determines it.
        dropout: Probability of dropout between layers.
        bidirectional: Whether each layer also runs over the reversed sequence.
        training: Whether to apply dropout and to save values for gradients.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (steps, batch, D * H), last hidden states and last cell states, both of the shape of `h`.

    Source:
        Hochreiter, Schmidhuber: Long short-term memory, 1997; with the forget gate of Gers et al., 2000.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x, h, c = nn.Variable((5, 2, 3)), nn.Variable((1, 1, 2, 4)), nn.Variable((1, 1, 2, 4))
        >>> y, last_h, last_c = PF.lstm(x, h, c, name="demo-lstm")
        >>> y.shape, last_h.shape, last_c.shape
        ((5, 2, 4), (1, 1, 2, 4), (1, 1, 2, 4))
    """
    stack = Stack("lstm", x, h, bidirectional, gates=4)
    arrays("lstm", h=h, c=c)
    if c.shape != h.shape:
        raise ShapeError(f"lstm: expected `c` of the shape {h.shape} of `h`, got shape {c.shape}")
    w0, w, b = stack.parameters(w0_init, w_init, b_init, rng, with_bias, fix_parameters)
    found: tuple[Variable, Variable, Variable] = F.lstm(
        x, h, c, w0, w, b, stack.layers, dropout, bidirectional, training
    )
    return found


@parametric_function_api(
    "gru",
    [
        ("weight_l0", "Weight of the first layer", "(D, 3, H, inputs + H)", True),
        ("weight", "Weight of the other layers", "(L - 1, D, 3, H, D * H + H)", True),
        ("bias", "Bias", "(L, D, 4, H)", True),
    ],
)
def gru(
    x: Variable,
    h: Variable,
    w0_init: Initializer | None = None,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    num_layers: int = 1,
    dropout: float = 0.0,
    bidirectional: bool = False,
    training: bool = True,
    rng: RandomState | None = None,
    with_bias: bool = True,
    fix_parameters: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Gated recurrent units over a sequence, in L layers.

    Args:
        x: Sequence, shape (steps, batch, inputs).
        h: First states, shape (L, D, batch, H), where D is 2 with `bidirectional` and 1 without.
        w0_init: Initial weight of the first layer; by default uniform, `calc_uniform_lim_glorot`.
        w_init: Initial weight of the other layers; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        num_layers: No effect: the shape of `h` determines it.
        dropout: Probability of dropout between layers.
        bidirectional: Whether each layer also runs over the reversed sequence.
        training: Whether to apply dropout and to save values for gradients.
        rng: Generator for the default initial values.
        with_bias: Whether to add a bias.
        fix_parameters: Whether to use the parameters without a gradient.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (steps, batch, D * H), and last states, shape of `h`.

    Source:
        Cho et al.: Learning phrase representations using RNN encoder-decoder, 2014.

    Examples:
        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> x, h = nn.Variable((5, 2, 3)), nn.Variable((1, 1, 2, 4))
        >>> y, last = PF.gru(x, h, name="demo-gru")
        >>> y.shape, last.shape
        ((5, 2, 4), (1, 1, 2, 4))
    """
    stack = Stack("gru", x, h, bidirectional, gates=3)
    w0, w, b = stack.parameters(w0_init, w_init, b_init, rng, with_bias, fix_parameters, bias_gates=4)
    found: tuple[Variable, Variable] = F.gru(x, h, w0, w, b, stack.layers, dropout, bidirectional, training)
    return found


class Stack:
    """Shapes and first values of the parameters of stacked layers, each of one gate or several."""

    def __init__(self, op: str, x: Variable, h: Variable, bidirectional: bool, gates: int | None) -> None:
        check_input(op, x, min_ndim=3)
        check_input(op, h, min_ndim=4)
        self.op, self.inputs, self.hidden = op, x.shape[2], h.shape[3]
        self.layers, self.directions = h.shape[0], 2 if bidirectional else 1
        self.gates = () if gates is None else (gates,)
        if h.shape[1] != self.directions:
            raise ShapeError(f"{op}: expected `h` of shape (layers, {self.directions}, batch, size), got {h.shape}")
        if self.layers < 1:
            raise RangeError(f"{op}: expected at least one layer, got `h` of shape {h.shape}")

    def parameters(
        self,
        w0_init: Initializer | None,
        w_init: Initializer | None,
        b_init: Initializer | None,
        rng: RandomState | None,
        with_bias: bool,
        fix_parameters: bool,
        bias_gates: int | None = None,
    ) -> tuple[Variable, Variable | None, Variable | None]:
        """The parameters: weight of the first layer, weight of the others, bias."""
        known, below = here(), self.directions * self.hidden
        w0_shape = (self.directions, *self.gates, self.hidden, self.inputs + self.hidden)
        if w0_init is None and "weight_l0" not in known:
            w0_init = self._uniform(w0_shape, self.inputs, rng)
        w0 = get_parameter_or_create("weight_l0", w0_shape, w0_init, True, not fix_parameters)
        w = None
        if self.layers > 1:
            w_shape = (self.layers - 1, self.directions, *self.gates, self.hidden, below + self.hidden)
            if w_init is None and "weight" not in known:
                w_init = self._uniform(w_shape, below, rng)
            w = get_parameter_or_create("weight", w_shape, w_init, True, not fix_parameters)
        b = None
        if with_bias:
            gates = self.gates if bias_gates is None else (bias_gates,)
            shape = (self.layers, self.directions, *gates, self.hidden)
            init = ConstantInitializer() if b_init is None else b_init
            b = get_parameter_or_create("bias", shape, init, True, not fix_parameters)
        return w0, w, b

    def _uniform(self, shape: tuple[int, ...], inputs: int, rng: RandomState | None) -> NDArray[np.float64]:
        """Weights of inputs and of states, concatenated along the last axis. Each part has its own uniform range."""
        parts = []
        for size in (inputs, self.hidden):
            draw = UniformInitializer(calc_uniform_lim_glorot(size, self.hidden), rng)
            parts.append(draw((*shape[:-1], size)))
        return np.concatenate(parts, axis=-1)
