"""Scores of classes as operators of `ai.onnx.ml` give them, and the labels of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..array_function import computed_by_arrays
from ..containers import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..values import Node, Value

__all__ = ["labelled", "transformed"]


def _logistic(x: NDArray[Any]) -> NDArray[Any]:
    """Returns the logistic function without overflow."""
    grown = np.exp(-np.abs(x))
    found: NDArray[Any] = np.where(x >= 0, 1, grown) / (1 + grown)
    return found


def _softmax(x: NDArray[Any]) -> NDArray[Any]:
    """Returns the softmax of each row."""
    grown = np.exp(x - x.max(1, keepdims=True))
    found: NDArray[Any] = grown / grown.sum(1, keepdims=True)
    return found


def _softmax_of_nonzero(x: NDArray[Any]) -> NDArray[Any]:
    """Returns the softmax of the scores that are not zero. The others stay zero."""
    is_there = np.abs(x) > 1e-7
    grown = np.where(is_there, np.exp(x - x.max(1, keepdims=True)), 0)
    total = grown.sum(1, keepdims=True)
    found: NDArray[Any] = np.where(total > 0, grown / np.where(total > 0, total, 1), 0)
    return found


def _probit(x: NDArray[Any]) -> NDArray[Any]:
    """Returns the quantiles of the normal distribution, by Winitzki's formula, which ONNX Runtime uses."""
    y = 2 * x - 1
    log = np.log((1 - y) * (1 + y))
    a = 2 / (np.pi * 0.147) + 0.5 * log
    found: NDArray[Any] = 2**0.5 * np.where(y < 0, -1, 1) * np.sqrt(np.sqrt(a * a - log / 0.147) - a)
    return found


def transformed(node: Node, scores: NDArray[Any], second: str = "", kind: str | None = None) -> NDArray[Any]:
    """Returns scores after the transformation that a node names.

    Args:
        node: The node.
        scores: The scores, one row for each example.
        second: If there is one score for two classes, how the other is made of it: `complement` or `negative`.
        kind: The transformation; by default the attribute `post_transform`.
    """
    kind = kind or node.get("post_transform", "NONE")
    with np.errstate(all="ignore"):
        if second:
            if kind == "PROBIT":
                raise node.unsupported("expected another transformation of one score for two classes, got PROBIT")
            if second == "complement" and kind != "LOGISTIC":
                return np.concatenate([1 - scores, scores], axis=1)
            both = np.concatenate([-scores, scores], axis=1)
            return _logistic(both) if kind == "LOGISTIC" else both
        made = {
            "LOGISTIC": _logistic,
            "NONE": lambda x: x,
            "PROBIT": _probit,
            "SOFTMAX": _softmax,
            "SOFTMAX_ZERO": _softmax_of_nonzero,
        }
        if kind not in made:
            raise node.unsupported(f"expected a transformation of {sorted(made)}, got {kind}")
        found: NDArray[Any] = made[kind](scores).astype(scores.dtype)
        return found


def labelled(
    node: Node,
    compute: Callable[[NDArray[Any]], list[NDArray[Any]]],
    labels: Sequence[Any],
    n_rows: int,
    n_scores: int,
) -> list[Value]:
    """Returns labels and scores.

    Args:
        node: The node.
        compute: Makes the places of the labels and the scores of the features.
        labels: The labels: integers or strings.
        n_rows: The number of examples.
        n_scores: The number of scores for each.
    """
    if labels and isinstance(labels[0], str):
        shapes = [(n_rows,), (n_rows, n_scores)]
        places, scores = computed_by_arrays(node.operator, compute, [node.value(0)], shapes, [np.int64, np.float32])
        return [Words(places, labels), scores]
    table = np.asarray(labels if len(labels) else [0], np.int64)

    def numbered(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the label as an integer, and the scores of each row."""
        at, scores = compute(x)
        return [table[at], scores]

    shapes = [(n_rows,), (n_rows, n_scores)]
    return computed_by_arrays(node.operator, numbered, [node.value(0)], shapes, [np.int64, np.float32])
