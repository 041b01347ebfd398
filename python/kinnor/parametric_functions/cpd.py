"""Canonical polyadic decomposition: an array as a sum of outer products of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._check import count, number
from .._core import RangeError

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import DTypeLike, NDArray

__all__ = ["ALS"]


class ALS:
    """Alternating least squares: solves for the factors of one axis at a time while the others stay fixed.

    >>> import numpy as np
    >>> x = np.einsum("i,j,k->ijk", [1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 0.5])
    >>> (a, b, c), scale = ALS().solve(x, 1)
    >>> bool(np.allclose(np.einsum("ir,jr,kr,r->ijk", a, b, c, scale), x))
    True
    """

    def solve(
        self,
        X: NDArray[Any],
        rank: int,
        max_iter: int = 500,
        stopping_criterion: float = 1e-5,
        lambda_reg: float = 0.0,
        dtype: DTypeLike = np.float32,
        rng: RandomState | None = None,
    ) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Approximate an array: `X[i, j, ...] = sum_r scale[r] A[i, r] B[j, r] ...`.

        Args:
            X: The array, with two axes or more.
            rank: Number of terms.
            max_iter: Maximum number of iterations.
            stopping_criterion: Change of the fit at which iterations stop; a negative number never stops them.
            lambda_reg: Weight of an L2 penalty on the factors.
            dtype: Type of the initial factors.
            rng: Random generator of the initial factors; by default one with the seed 313.

        Returns:
            The factors, one matrix of shape (length, rank) for each axis, and the scale, shape (rank,).

        Raises:
            RangeError: If the array has fewer than two axes.
        """
        op = "ALS.solve"
        rank = count(op, "rank", rank)
        stopping_criterion = number(op, "stopping_criterion", stopping_criterion)
        lambda_reg = number(op, "lambda_reg", lambda_reg)
        if X.ndim < 2:
            raise RangeError(f"{op}: expected an array of two axes or more, got shape {X.shape}")
        rng = np.random.RandomState(313) if rng is None else rng
        factors: list[Any] = [None, *(np.array(rng.rand(n, rank), dtype) for n in X.shape[1:])]
        scale, fit, square = np.ones(rank), 0.0, np.sum(X**2)
        for iteration in range(count(op, "max_iter", max_iter)):
            for axis in range(X.ndim):
                factors[axis], scale = self._axis(X, factors, axis, lambda_reg, first=iteration == 0)
            if stopping_criterion < 0:
                continue
            close = self._product(factors, scale)
            before, fit = fit, 1 - (square + np.sum(close**2) - 2 * np.sum(X * close)) / square
            if iteration > 0 and abs(before - fit) < stopping_criterion:
                break
        return factors, scale

    def _axis(
        self, x: NDArray[Any], factors: list[Any], axis: int, lambda_reg: float, first: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The best factors of one axis, and the scale separated from them."""
        others = [i for i in range(x.ndim) if i != axis]
        gram = (
            np.prod([factors[i].T @ factors[i] for i in others], axis=0)
            + np.eye(len(factors[others[0]].T)) * lambda_reg
        )
        letters = "abcdefghijklmnopqrstuvwxyz"[: x.ndim]
        terms = ",".join(f"{letters[i]}R" for i in others)
        found = np.einsum(f"{letters},{terms}->{letters[axis]}R", x, *(factors[i] for i in others), optimize=True)
        found = found @ np.linalg.pinv(gram)
        scale = np.sqrt(np.sum(found**2, axis=0)) if first else np.maximum(found.max(axis=0), 1)
        return found / scale, scale

    @staticmethod
    def _product(factors: list[Any], scale: NDArray[Any]) -> NDArray[Any]:
        """The array that the factors represent."""
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(factors)]
        terms = ",".join(f"{letter}R" for letter in letters)
        product: NDArray[Any] = np.einsum(f"{terms},R->{letters}", *factors, scale, optimize=True)
        return product
