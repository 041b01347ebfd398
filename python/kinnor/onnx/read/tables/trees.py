"""Ensembles of trees of `ai.onnx.ml`: all rows walk down all trees together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..array_function import computed_by_arrays
from ..values import OnnxError, Row, Value
from .classes import labelled, transformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["TREES"]

_AT_ONCE = 1 << 20
"""Number of leaves that are looked up together."""

_BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
"""The comparison of a feature with a threshold in each mode. The branch is taken if it is true."""
_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER"]
"""The modes of `TreeEnsemble`, by number."""


class _Trees:
    """Trees as arrays of their nodes. A leaf is its own successor.

    Args:
        features: The feature that each node looks at.
        thresholds: The number that it is compared with.
        modes: The comparison of each node; `LEAF` for leaves.
        successors: The nodes after a comparison that is false, and true.
        takes_missing: True where a missing number counts as true.
        roots: The first node of each tree.
        weights: The weight of each leaf for each target.
        counts: True where a leaf has a weight.
        members: The sets of nodes that ask for membership.

    Attributes:
        n_features: The number of features that rows have at least.
    """

    def __init__(
        self,
        features: NDArray[Any],
        thresholds: NDArray[Any],
        modes: NDArray[Any],
        successors: NDArray[Any],
        takes_missing: NDArray[Any],
        roots: NDArray[Any],
        weights: NDArray[Any],
        counts: NDArray[Any],
        members: dict[int, NDArray[Any]] | None = None,
    ) -> None:
        leaves = modes == "LEAF"
        at = np.arange(len(features))
        self._features = np.where(leaves, 0, features).astype(np.int64)
        self._thresholds = thresholds
        self._successors = np.where(leaves, at, successors).astype(np.int64)
        self._takes_missing = takes_missing.astype(bool)
        self._modes = {mode: modes == mode for mode in np.unique(modes[~leaves]).tolist()}
        self._roots = roots
        self._weights, self._counts = weights, counts
        self._members = members or {}
        self._depth = self._longest(roots)
        self.n_features = int(self._features.max(initial=-1)) + 1

    def _longest(self, roots: NDArray[Any]) -> int:
        """Returns the number of comparisons to the deepest leaf."""
        for depth in range(len(self._features) + 1):
            after = np.unique(self._successors[:, roots])
            if (self._successors[:, after] == after).all():
                return depth + 1
            if np.array_equal(after, roots):
                break
            roots = after
        raise OnnxError("expected trees, got nodes in a circle")

    def leaves(self, x: NDArray[Any]) -> NDArray[Any]:
        """Returns the leaf of each row in each tree."""
        at = np.broadcast_to(self._roots, (len(x), len(self._roots)))
        rows = np.arange(len(x))[:, None]
        missing = bool(np.isnan(x).any()) if x.dtype.kind == "f" else False
        for _ in range(self._depth):
            given, wanted = x[rows, self._features[at]], self._thresholds[at]
            if len(self._modes) == 1 and not self._members:
                is_true = _BRANCHES[next(iter(self._modes))](given, wanted)
            else:
                is_true = np.zeros(at.shape, bool)
                for mode, chosen in self._modes.items():
                    if mode != "BRANCH_MEMBER":
                        is_true |= chosen[at] & _BRANCHES[mode](given, wanted)
                for place, members in self._members.items():
                    is_true |= (at == place) & np.isin(given, members)
            if missing:
                is_true |= np.isnan(given) & self._takes_missing[at]
            at = self._successors[is_true.view(np.int8), at]
        return at

    def sums(self, x: NDArray[Any], aggregate: str) -> NDArray[Any]:
        """Returns the aggregated weights of the leaves that each row reaches, shape (rows, targets)."""
        n_trees, n_targets = max(len(self._roots), 1), self._weights.shape[1]
        step = max(_AT_ONCE // (n_trees * n_targets), 1)
        found = np.zeros((len(x), n_targets))
        for start in range(0, len(x), step):
            at = self.leaves(x[start : start + step])
            given = self._weights[at]
            if aggregate in ("MIN", "MAX"):
                counts = self._counts[at]
                worst = np.where(counts, given, np.inf if aggregate == "MIN" else -np.inf)
                best = worst.min(1) if aggregate == "MIN" else worst.max(1)
                found[start : start + step] = np.where(counts.any(1), best, 0)
            else:
                found[start : start + step] = given.sum(1)
        return found / n_trees if aggregate == "AVERAGE" else found


def _numbers(node: Node, name: str, default: Any = None) -> NDArray[Any] | None:
    """Returns an attribute as an array. It is a list, or a tensor of doubles under its name with `_as_tensor`."""
    found = node.get(f"{name}_as_tensor")
    found = node.get(name, default) if found is None else found
    return None if found is None else np.asarray(found)


def _read(node: Node, kind: str, n_targets: int) -> _Trees:
    """Returns the trees of `TreeEnsembleRegressor` and `TreeEnsembleClassifier`."""
    trees, ids = np.asarray(node.get("nodes_treeids")), np.asarray(node.get("nodes_nodeids"))
    modes = np.asarray(node.get("nodes_modes"))
    n = len(ids)
    place = {key: at for at, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    successors = np.zeros((2, n), np.int64)
    for row, name in enumerate(("nodes_falsenodeids", "nodes_truenodeids")):
        for at, (tree, child) in enumerate(zip(trees.tolist(), node.get(name), strict=True)):
            successors[row, at] = at if modes[at] == "LEAF" else place[tree, child]
    _, first = np.unique(trees, return_index=True)
    thresholds = _numbers(node, "nodes_values", [0.0] * n)
    dtype = np.float64 if node.get("nodes_values_as_tensor") is not None else np.float32
    weights, counts = np.zeros((n, n_targets)), np.zeros((n, n_targets), bool)
    keys = zip(*(node.get(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids")), strict=True)
    held = _numbers(node, f"{kind}_weights", [])
    for (tree, leaf, target), weight in zip(keys, [] if held is None else held.tolist(), strict=True):
        weights[place[tree, leaf], target] += weight
        counts[place[tree, leaf], target] = True
    missing = np.asarray(node.get("nodes_missing_value_tracks_true") or np.zeros(n))
    if unknown := set(np.unique(modes).tolist()) - {*_BRANCHES, "LEAF"}:
        raise node.unsupported(f"expected nodes of {sorted(_BRANCHES)}, got {sorted(unknown)}")
    return _Trees(
        np.asarray(node.get("nodes_featureids")),
        np.asarray(thresholds).astype(dtype),
        modes,
        successors,
        missing,
        np.sort(first),
        weights,
        counts,
    )


def _regressor(node: Node) -> Value:
    """Builds `TreeEnsembleRegressor`."""
    n_targets = node.get("n_targets", 1)
    trees: _Trees = node.once("trees", lambda: _read(node, "target", n_targets))
    aggregate = node.get("aggregate_function", "SUM")
    base = _numbers(node, "base_values")
    shift = np.zeros(n_targets) if base is None or not base.size else base.astype(np.float64)

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the targets of each row, in float32 for thresholds of any type."""
        y = (trees.sums(_rows(x), aggregate) + shift).astype(np.float32)
        return [transformed(node, y) if n_targets > 1 or node.get("post_transform") == "PROBIT" else y]

    shape = (_n_rows(node, trees), n_targets)
    return computed_by_arrays(node.operator, compute, [node.value(0)], [shape], [np.float32])[0]


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    """Returns features as rows: a single example is one row."""
    return x[None] if x.ndim == 1 else x


def _n_rows(node: Node, trees: _Trees) -> int:
    """Returns the number of rows, which must have the features that trees look at."""
    shape = node.value(0).shape
    if len(shape) not in (1, 2) or shape[-1] < trees.n_features:
        raise OnnxError(f"{node.operator}: expected rows of {trees.n_features} features or more, got shape {shape}")
    return 1 if len(shape) == 1 else shape[0]


def _classifier(node: Node) -> list[Value]:
    """Builds `TreeEnsembleClassifier`."""
    labels = node.get("classlabels_strings") or node.get("classlabels_int64s")
    n_classes, ids = len(labels), node.get("class_ids")
    if n_classes < 2 or max(ids, default=0) >= n_classes or min(ids, default=0) < 0:
        raise OnnxError(f"TreeEnsembleClassifier: expected a label for each of two classes or more, got {n_classes}")
    trees: _Trees = node.once("trees", lambda: _read(node, "class", n_classes))
    base = _numbers(node, "base_values")
    shift = np.zeros(0) if base is None else base.astype(np.float64)
    given = _numbers(node, "class_weights")
    is_positive = given is None or bool((given >= 0).all())
    one = ids[0] if n_classes == 2 and len(set(ids)) == 1 else None
    if one == 1 and shift.size == 2:
        raise node.unsupported("expected no base values of two classes where one has all weights, got two")

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the number of the label and the scores of each row."""
        scores = trees.sums(_rows(x), "SUM")
        if one is None:
            scores = (scores + (shift if shift.size else 0)).astype(np.float32)
            return [scores.argmax(1), transformed(node, scores)]
        if one == 0:
            scores[:, 0] += shift[0] if shift.size else 0
        scores = scores.astype(np.float32)
        chosen = (scores[:, one] > (0.5 if is_positive else 0)).astype(np.int64)
        if one == 0 and shift.size < 2:
            return [chosen, transformed(node, scores[:, :1], "complement" if is_positive else "negative")]
        return [chosen, transformed(node, scores)]

    return labelled(node, compute, labels, _n_rows(node, trees), n_classes)


def _read_apart(node: Node, n_targets: int) -> _Trees:
    """Returns the trees of `TreeEnsemble`, where leaves are apart from the other nodes."""
    splits, modes = np.asarray(node.get("nodes_splits")), np.asarray(node.get("nodes_modes"))
    n = len(splits)
    weights = np.asarray(node.get("leaf_weights"))
    n_leaves = len(weights)
    successors = np.zeros((2, n + n_leaves), np.int64)
    for row, name in enumerate(("false", "true")):
        ids, are_leaves = np.asarray(node.get(f"nodes_{name}nodeids")), np.asarray(node.get(f"nodes_{name}leafs"))
        successors[row, :n] = np.where(are_leaves.astype(bool), n + ids, ids)
    names = np.array([*[_MODES[mode] for mode in modes.tolist()], *["LEAF"] * n_leaves])
    held, counts = np.zeros((n + n_leaves, n_targets)), np.zeros((n + n_leaves, n_targets), bool)
    targets = np.asarray(node.get("leaf_targetids"))
    held[n + np.arange(n_leaves), targets] = weights
    counts[n + np.arange(n_leaves), targets] = True
    members, sets = {}, node.get("membership_values")
    if sets is not None:
        parts = np.split(np.asarray(sets), np.flatnonzero(np.isnan(sets)))
        cleaned = [part[~np.isnan(part)] for part in parts]
        members = dict(zip(np.flatnonzero(names == "BRANCH_MEMBER").tolist(), cleaned, strict=False))
    missing = np.asarray(node.get("nodes_missing_value_tracks_true") or np.zeros(n))
    return _Trees(
        np.concatenate([np.asarray(node.get("nodes_featureids")), np.zeros(n_leaves, np.int64)]),
        np.concatenate([splits, np.zeros(n_leaves, splits.dtype)]),
        names,
        successors,
        np.concatenate([missing, np.zeros(n_leaves)]),
        np.asarray(node.get("tree_roots")),
        held,
        counts,
        members,
    )


def _ensemble(node: Node) -> Value:
    """Builds `TreeEnsemble`."""
    n_targets, dtype = node.get("n_targets", 1), np.asarray(node.get("nodes_splits")).dtype
    trees: _Trees = node.once("trees", lambda: _read_apart(node, n_targets))
    aggregate = ["AVERAGE", "SUM", "MIN", "MAX"][node.get("aggregate_function", 1)]
    kind = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"][node.get("post_transform", 0)]

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the targets of each row."""
        return [transformed(node, trees.sums(_rows(x), aggregate).astype(dtype), kind=kind)]

    shape = (_n_rows(node, trees), n_targets)
    return computed_by_arrays(node.operator, compute, [node.value(0)], [shape], [dtype])[0]


TREES: dict[tuple[str, str], Row] = {
    ("ai.onnx.ml", "TreeEnsemble"): Row(_ensemble),
    ("ai.onnx.ml", "TreeEnsembleClassifier"): Row(_classifier),
    ("ai.onnx.ml", "TreeEnsembleRegressor"): Row(_regressor),
}
"""One row for each operator."""
