"""Recurrent layers over sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .. import functions as F
from .._core import ShapeError, Variable
from ..core import Module
from ..parametric_functions.recurrent import Stack
from .arguments import check_axis, probability, registered, whole

if TYPE_CHECKING:
    from numpy.random import RandomState

__all__ = ["GRU", "LSTM"]


class _Recurrent(Module):
    """Arguments, parameters and orders of axes that recurrent layers have in common."""

    _GATES: ClassVar[int]
    """The number of weight matrices of a unit: one for each gate."""
    _BIAS_GATES: ClassVar[int]
    """The number of biases of a unit."""

    weight_l0: Variable
    """The weights of the first layer, for each direction."""
    weight: Variable | None
    """The weights of the other layers, or None if there is one layer."""
    bias: Variable | None
    """The biases of all layers, or None without bias."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        rng: RandomState | None = None,
    ) -> None:
        op = self._op = type(self).__name__
        self.input_size = whole(op, "input_size", input_size)
        self.hidden_size = whole(op, "hidden_size", hidden_size)
        self.num_layers = whole(op, "num_layers", num_layers)
        self.batch_first, self.bidirectional = bool(batch_first), bool(bidirectional)
        self.dropout = probability(op, dropout)
        self.directions = 2 if self.bidirectional else 1
        x = Variable((1, 1, self.input_size))
        h = Variable((self.num_layers, self.directions, 1, self.hidden_size))
        stack = Stack(op, x, h, self.bidirectional, gates=self._GATES)
        stack.parameters(None, None, None, rng, bias, False, bias_gates=self._BIAS_GATES)
        self.weight_l0 = registered(self, "weight_l0")
        self.weight = registered(self, "weight") if self.num_layers > 1 else None
        self.bias = registered(self, "bias") if bias else None

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        more = [("num_layers", self.num_layers, 1), ("bidirectional", self.bidirectional, False)]
        texts = [f"{name}={value}" for name, value, default in more if value != default]
        return ", ".join([str(self.input_size), str(self.hidden_size), *texts])

    def _ordered(self, x: Variable) -> Variable:
        """The input with the steps first."""
        check_axis(self._op, x, 2, self.input_size, (3,))
        return F.transpose(x, (1, 0, 2)) if self.batch_first else x

    def _ordered_back(self, y: Variable) -> Variable:
        """Returns an output in the order of axes of the input."""
        return F.transpose(y, (1, 0, 2)) if self.batch_first else y

    def _split(self, state: Variable | None, batch: int) -> Variable:
        """A state with separate axes for layers and directions, as the functions take it; zeros by default."""
        if state is None:
            return F.constant(0, (self.num_layers, self.directions, batch, self.hidden_size))
        expected = (self.num_layers * self.directions, batch, self.hidden_size)
        if state.shape != expected:
            raise ShapeError(f"{self._op}: expected a state of shape {expected}, got shape {state.shape}")
        return F.reshape(state, (self.num_layers, self.directions, batch, self.hidden_size))

    def _joined(self, state: Variable) -> Variable:
        """Joins the axes of layers and directions of a state."""
        return F.reshape(state, (self.num_layers * self.directions, *state.shape[2:]))


class LSTM(_Recurrent):
    """Long short-term memory over a sequence. The parametric function is `lstm`.

    Args:
        input_size: Size of the last axis of the input.
        hidden_size: Size of the states.
        num_layers: Number of layers, one on top of the other.
        bias: True to add biases.
        batch_first: True for inputs and outputs of shape (batch, steps, ...).
        dropout: Share of a layer's output that is dropped on its way to the next layer, in training mode.
        bidirectional: True to go through the sequence backwards, too, with a second state.
        rng: Generator for the initial values, which are uniform, `calc_uniform_lim_glorot`.

    Attributes:
        weight_l0: Weight of the first layer.
        weight: Weight of the other layers, or None.
        bias: Bias, or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> y, state = L.LSTM(3, 8, num_layers=2, batch_first=True)(nn.Variable((5, 7, 3)))
        >>> y.shape, state[0].shape
        ((5, 7, 8), (2, 5, 8))

    Source:
        Hochreiter, Schmidhuber: Long short-term memory, 1997; with the forget gate of Gers et al., 2000.
    """

    _GATES, _BIAS_GATES = 4, 4
    """Numbers of gates in the weights and in the biases."""

    def call(
        self, x: Variable, state: tuple[Variable, Variable] | None = None
    ) -> tuple[Variable, tuple[Variable, Variable]]:
        """The output and the last states.

        Args:
            x: Sequence, shape (steps, batch, input_size), or (batch, steps, input_size) with `batch_first`.
            state: First hidden states and first cell states, both of shape
                (num_layers * directions, batch, hidden_size), where directions is 2 with `bidirectional` and 1
                without; zeros by default.

        Returns:
            The output, shape (steps, batch, directions * hidden_size) or with the batch first. Then
            the last hidden states and the last cell states, both of the shape of `state`.

        Raises:
            ShapeError: If the input or a state has another shape.
        """
        x = self._ordered(x)
        batch = x.shape[1]
        h, c = (None, None) if state is None else state
        y, last_h, last_c = F.lstm(
            x,
            self._split(h, batch),
            self._split(c, batch),
            self.weight_l0,
            self.weight,
            self.bias,
            self.num_layers,
            self.dropout if self.training else 0.0,
            self.bidirectional,
            True,
        )
        return self._ordered_back(y), (self._joined(last_h), self._joined(last_c))

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class GRU(_Recurrent):
    """Gated recurrent units over a sequence. The parametric function is `gru`.

    Args:
        input_size: Size of the last axis of the input.
        hidden_size: Size of the states.
        num_layers: Number of layers, one on top of the other.
        bias: True to add biases.
        batch_first: True for inputs and outputs of shape (batch, steps, ...).
        dropout: Share of a layer's output that is dropped on its way to the next layer, in training mode.
        bidirectional: True to go through the sequence backwards, too, with a second state.
        rng: Generator for the initial values, which are uniform, `calc_uniform_lim_glorot`.

    Attributes:
        weight_l0: Weight of the first layer.
        weight: Weight of the other layers, or None.
        bias: Bias, or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> y, state = L.GRU(3, 8, num_layers=2, batch_first=True)(nn.Variable((5, 7, 3)))
        >>> y.shape, state.shape
        ((5, 7, 8), (2, 5, 8))

    Source:
        Cho et al.: Learning phrase representations using RNN encoder-decoder, 2014.
    """

    _GATES, _BIAS_GATES = 3, 4

    def call(self, x: Variable, state: Variable | None = None) -> tuple[Variable, Variable]:
        """The output and the last states.

        Args:
            x: Sequence, shape (steps, batch, input_size), or (batch, steps, input_size) with `batch_first`.
            state: First states, of shape
                (num_layers * directions, batch, hidden_size), where directions is 2 with `bidirectional` and 1
                without; zeros by default.

        Returns:
            The output, shape (steps, batch, directions * hidden_size) or with the batch first, and
            the last states, of the shape of `state`.

        Raises:
            ShapeError: If the input or a state has another shape.
        """
        x = self._ordered(x)
        batch = x.shape[1]
        y, last = F.gru(
            x,
            self._split(state, batch),
            self.weight_l0,
            self.weight,
            self.bias,
            self.num_layers,
            self.dropout if self.training else 0.0,
            self.bidirectional,
            True,
        )
        return self._ordered_back(y), self._joined(last)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call
