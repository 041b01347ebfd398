"""The LSTM cell: a single step of a recurrent network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import functions as F
from .._core import ShapeError, Variable
from .arguments import check_input, sizes
from .decorator import parametric_function_api
from .layers import affine

if TYPE_CHECKING:
    from ..initializer import Initializer

__all__ = ["LSTMCell", "lstm_cell"]


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
        self.name = name
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
    if given.shape != shape:
        raise ShapeError(f"LSTMCell: expected `{what}` of shape {shape}, got shape {given.shape}")
    return given
