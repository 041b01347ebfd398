"""Layers of matrices: affine transformations and tables of vectors."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from .. import functions as F
from ..core import Module
from ..initializer import UniformInitializer
from ..parameter import get_parameter_or_create
from ..parametric_functions import arguments
from .arguments import check_axis, registered, whole

if TYPE_CHECKING:
    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["Affine", "Embedding", "Linear"]


class Linear(Module):
    """Affine transformation of the last axis: `y = x W + b`. The parametric function is `affine` with `base_axis=-1`.

    Args:
        in_features: Size of the last axis of the input.
        out_features: Size of the last axis of the output.
        bias: True to add a bias.
        w_init: Initial weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        rng: Generator for the default of `w_init`.

    Attributes:
        W: Weight, shape (in_features, out_features).
        b: Bias, shape (out_features,), or None.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> layer = L.Linear(3, 4)
        >>> layer(nn.Variable((2, 5, 3))).shape
        (2, 5, 4)
        >>> layer
        Linear(3, 4): W (3, 4), b (4,)
        16 elements in 2 parameters
    """

    W: Variable
    b: Variable | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        rng: RandomState | None = None,
    ) -> None:
        self.in_features = whole("Linear", "in_features", in_features)
        self.out_features = whole("Linear", "out_features", out_features)
        fans = (self.in_features, self.out_features, (1, 1))
        arguments.weight((self.in_features, self.out_features), w_init, fans, rng, False)
        self.W = registered(self, "W")
        arguments.bias((self.out_features,), b_init, bias, False)
        self.b = registered(self, "b") if bias else None

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.in_features}, {self.out_features}{'' if self.b is not None else ', bias=False'}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (..., in_features).

        Returns:
            Array of shape (..., out_features).

        Raises:
            ShapeError: If the last axis has another size.
        """
        check_axis("Linear", x, -1, self.in_features)
        return F.affine(x, self.W, self.b, base_axis=x.ndim - 1)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


Affine = Linear


class Embedding(Module):
    """A learned vector for each index: `y = W[x]`. The parametric function is `embed`.

    Args:
        num_embeddings: Number of different indices.
        embedding_dim: Length of the vectors.
        w_init: Initial vectors; by default uniform from -sqrt(3) to sqrt(3), which has variance 1.

    Attributes:
        W: The vectors, shape (num_embeddings, embedding_dim).

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.Embedding(10, 4)(nn.Variable((2, 5))).shape
        (2, 5, 4)
    """

    W: Variable

    def __init__(self, num_embeddings: int, embedding_dim: int, *, w_init: Initializer | None = None) -> None:
        self.num_embeddings = whole("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = whole("Embedding", "embedding_dim", embedding_dim)
        init = UniformInitializer((-sqrt(3.0), sqrt(3.0))) if w_init is None else w_init
        get_parameter_or_create("W", (self.num_embeddings, self.embedding_dim), init)
        self.W = registered(self, "W")

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}"

    def call(self, x: Variable) -> Variable:
        """The vectors.

        Args:
            x: Indices from 0 to `num_embeddings` - 1, any shape.

        Returns:
            Array of shape (*x.shape, embedding_dim).
        """
        return F.embed(x, self.W)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call
