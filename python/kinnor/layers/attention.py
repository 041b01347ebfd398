"""Attention of several heads as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import functions as F
from .._core import CallError, RangeError, Variable
from .._python_functions.attention import attended
from ..core import Module
from ..parametric_functions.attention import parameters_of_heads
from .arguments import check_axis, probability, registered, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.random import RandomState

    from ..initializer import Initializer

__all__ = ["MultiHeadAttention", "MultiheadAttention"]


class MultiHeadAttention(Module):
    """Attention of several heads: each target gets an average of the values, weighted by how well the keys match.

    The parametric function is `multi_head_attention`.

    Args:
        embed_dim: Length of queries and of the output; it is divided among the heads.
        num_heads: Number of heads, which divides `embed_dim`.
        dropout: Share of the attention that is dropped, in training mode.
        bias: True to add biases.
        kdim: Length of the keys; by default `embed_dim`.
        vdim: Length of the values; by default `embed_dim`.
        batch_first: True for inputs and outputs of shape (batch, steps, ...).
        param_init: Initial values by the names of parameters; weights are uniform by default, biases zero.
        rng: Generator for the default initial values.

    Attributes:
        q_weight: Weight of the queries, shape (embed_dim, embed_dim).
        k_weight: Weight of the keys, shape (kdim, embed_dim).
        v_weight: Weight of the values, shape (vdim, embed_dim).
        out_weight: Weight of the output, shape (embed_dim, embed_dim).

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> x = nn.Variable((2, 5, 8))
        >>> y, weights = L.MultiHeadAttention(8, 2, batch_first=True)(x, causal=True)
        >>> y.shape, weights.shape
        ((2, 5, 8), (4, 5, 5))

    Source:
        Vaswani et al.: Attention is all you need, 2017.
    """

    q_weight: Variable
    k_weight: Variable
    v_weight: Variable
    out_weight: Variable

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        param_init: Mapping[str, Initializer] | None = None,
        rng: RandomState | None = None,
    ) -> None:
        op = "MultiHeadAttention"
        self.embed_dim, self.num_heads = whole(op, "embed_dim", embed_dim), whole(op, "num_heads", num_heads)
        if self.embed_dim % self.num_heads:
            raise RangeError(f"{op}: expected `num_heads` to divide `embed_dim`, got {num_heads} and {embed_dim}")
        self.kdim = self.embed_dim if kdim is None else whole(op, "kdim", kdim)
        self.vdim = self.embed_dim if vdim is None else whole(op, "vdim", vdim)
        self.dropout = probability(op, dropout)
        self.batch_first = bool(batch_first)
        e = self.embed_dim
        shapes = [(e, e), (self.kdim, e), (self.vdim, e), (e, e)]
        parameters_of_heads(op, shapes, rng, bias, False, False, param_init)
        self._names = list(self.parameter_scope)
        for name in self._names:
            setattr(self, name, registered(self, name))

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.embed_dim}, {self.num_heads}"

    def call(
        self,
        query: Variable,
        key: Variable | None = None,
        value: Variable | None = None,
        *,
        additive_mask: Variable | None = None,
        key_padding_mask: Variable | None = None,
        causal: bool = False,
        need_weights: bool = True,
    ) -> tuple[Variable, Variable | None]:
        """The output and the weights of the attention.

        Args:
            query: Queries, shape (targets, batch, embed_dim), or (batch, targets, embed_dim) with `batch_first`.
            key: Keys, shape (sources, batch, kdim) or with the batch first; by default the queries.
            value: Values, shape (sources, batch, vdim) or with the batch first; by default the keys.
            additive_mask: Numbers to add to the attention before the softmax, shape (targets, sources).
            key_padding_mask: 1 where a source is to be ignored, 0 elsewhere, shape (batch, sources).
            causal: True if a target must not see later sources.
            need_weights: False to leave out the weights.

        Returns:
            The output, of the shape of the queries, and the weights of all heads, shape
            (batch * num_heads, targets, sources), or None.

        Raises:
            ShapeError: If an input has another shape.
        """
        op = "MultiHeadAttention"
        key = query if key is None else key
        value = key if value is None else value
        for x, size in ((query, self.embed_dim), (key, self.kdim), (value, self.vdim)):
            check_axis(op, x, 2, size, (3,))
        if self.batch_first:
            query, key, value = (F.transpose(x, (1, 0, 2)) for x in (query, key, value))
        if causal:
            if additive_mask is not None:
                raise CallError(f"{op}: expected `causal` or `additive_mask`, got both")
            later = np.triu(np.full((query.shape[0], key.shape[0]), -np.inf, np.float32), 1)
            additive_mask = Variable.from_numpy_array(later)
        own = {name: getattr(self, name) for name in self._names}
        y, weights = attended(
            query,
            key,
            value,
            self.num_heads,
            **own,
            dropout=self.dropout if self.training else 0.0,
            additive_mask=additive_mask,
            key_padding_mask=key_padding_mask,
        )
        if self.batch_first:
            y = F.transpose(y, (1, 0, 2))
        return y, weights() if need_weights else None

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


MultiheadAttention = MultiHeadAttention
