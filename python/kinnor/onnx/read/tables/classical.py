"""Operators of `ai.onnx.ml` but trees: features, linear models, support vectors, and labels."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..array_function import computed_by_arrays
from ..containers import Maps, Words
from ..values import OnnxError, Row, Value
from .building import expand, reshape
from .classes import labelled, transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["CLASSICAL"]


def _numbers(node: Node, name: str) -> NDArray[Any]:
    """Returns an attribute that is a list of numbers."""
    return np.asarray(node.get(name) or [], np.float32)


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    """Returns features as rows: a single example is one row."""
    return x[None] if x.ndim == 1 else x


def _n_rows(node: Node) -> int:
    """Returns the number of examples. A vector is one example."""
    shape = node.value(0).shape
    if len(shape) not in (1, 2):
        raise OnnxError(f"{node.operator}: expected rows of features, got shape {shape}")
    return 1 if len(shape) == 1 else shape[0]


def _computed(node: Node, compute: Callable[..., Any], shape: Sequence[int], dtype: Any = np.float32) -> Value:
    """Returns the output of a function that computes one array from the arrays of the inputs, in each run."""
    given = [value for value in node.inputs if value is not None]
    return computed_by_arrays(node.operator, lambda *x: [compute(*x)], given, [shape], [dtype])[0]


def _extracted(node: Node) -> Any:
    """Builds `ArrayFeatureExtractor`."""
    x, places = node.value(0), node.value(1)
    if x.known and places.known:
        return np.take(x.static(), places.static().ravel().astype(np.int64), axis=-1)
    variable = node.x(0)
    at = reshape(node.x(1), (places.variable.size,))
    if variable.ndim == 1:
        variable = reshape(variable, (1, variable.size))
    return Value(F.gather(variable, at, axis=variable.ndim - 1), x.dtype, sources=x.sources | places.sources)


def _binarized(node: Node) -> Variable:
    """Builds `Binarizer`."""
    return F.greater_scalar(node.x(), node.get("threshold", 0.0))


def _imputed(node: Node) -> Value:
    """Builds `Imputer`."""
    x = node.value(0)
    is_real = x.dtype.kind == "f"
    new = np.asarray(node.get("imputed_value_floats" if is_real else "imputed_value_int64s") or [0], x.dtype)
    old = node.get("replaced_value_float" if is_real else "replaced_value_int64", 0)

    def compute(array: NDArray[Any]) -> NDArray[Any]:
        """Replaces elements equal to `old`, or NaN, by the imputed values."""
        is_old = np.isnan(array) if isinstance(old, float) and np.isnan(old) else array == x.dtype.type(old)
        return np.where(is_old, new, array)

    return _computed(node, compute, x.shape, x.dtype)


def _dictionary(node: Node) -> Value:
    """Builds `DictVectorizer`. The dictionary is a row of values already, in the order of the attribute's keys."""
    x = node.value(0)
    return Value(x.static()) if x.known else Value(F.identity(x.variable), x.dtype, sources=x.sources)


def _vector(node: Node) -> Variable:
    """Builds `FeatureVectorizer`."""
    parts = []
    for i, n in enumerate(node.get("inputdimensions")):
        x = node.x(i)
        flat = reshape(x, (x.shape[0], x.size // (x.shape[0] or 1))) if x.ndim > 1 else reshape(x, (1, x.size))
        parts.append(F.slice(flat, [0, 0], [flat.shape[0], n], [1, 1]))
    return F.concatenate(*parts, axis=1)


def _scaled(node: Node) -> Variable:
    """Builds `Scaler`."""
    x, scale, offset = node.x(), _numbers(node, "scale"), _numbers(node, "offset")
    return (x - Variable.from_numpy_array(offset)) * Variable.from_numpy_array(scale)


def _normalized(node: Node) -> Variable:
    """Builds `Normalizer`. Rows of zeros stay as they are."""
    x, kind = node.x(), node.get("norm", "MAX")
    flat = reshape(x, (1, x.size)) if x.ndim == 1 else x
    if kind == "MAX":
        size = F.max(flat, axis=[1], keepdims=True)
    elif kind in ("L1", "L2"):
        size = F.norm(flat, p=int(kind[1]), axis=[1], keepdims=True)
    else:
        raise node.unsupported(f"expected a norm of MAX, L1, L2, got {kind}")
    size = size + F.equal_scalar(size, 0.0)
    return reshape(flat / expand(size, flat.shape), x.shape)


def _keys(node: Node, side: str) -> Any:
    """Returns the keys or values of a `LabelEncoder` as a list."""
    found = node.get(f"{side}_tensor")
    if found is not None:
        return np.asarray(found).ravel().tolist(), np.asarray(found).dtype
    for name, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        if node.get(f"{side}_{name}"):
            return node.get(f"{side}_{name}"), np.dtype(dtype)
    return [], np.dtype(object)


def _default(node: Node, dtype: Any) -> Any:
    """Returns the value for unknown keys of a `LabelEncoder`, by the element type of its output."""
    held = node.get("default_tensor")
    if held is not None:
        return np.asarray(held).ravel().tolist()[0]
    name, usual = {"O": ("string", "_Unused"), "f": ("float", -0.0)}.get(dtype.kind, ("int64", -1))
    return node.get(f"default_{name}", usual)


def _encoded(node: Node) -> Value:
    """Builds `LabelEncoder`."""
    if node.get("classes_strings"):  # version 1
        names = node.get("classes_strings")
        if isinstance(node.value(0), Words):
            return _mapped(node, names, list(range(len(names))), node.get("default_int64", -1), np.dtype(np.int64))
        return _mapped(node, list(range(len(names))), names, node.get("default_string", "_Unused"), np.dtype(object))
    (keys, _), (values, dtype) = _keys(node, "keys"), _keys(node, "values")
    return _mapped(node, keys, values, _default(node, dtype), dtype)


def _category(node: Node) -> Value:
    """Builds `CategoryMapper`."""
    names, numbers = node.get("cats_strings"), node.get("cats_int64s")
    if isinstance(node.value(0), Words):
        return _mapped(node, names, numbers, node.get("default_int64", -1), np.dtype(np.int64))
    return _mapped(node, numbers, names, node.get("default_string", "_Unused"), np.dtype(object))


def _mapped(node: Node, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: Any) -> Value:
    """Returns values for keys, element by element."""
    x = node.value(0)
    places = _places_among(node, list(keys))
    if dtype.kind == "O":
        return Words(places, [*values, default])
    table = np.asarray([*values, default], dtype)
    return computed_by_arrays(node.operator, lambda at: [table[at.astype(np.int64)]], [places], [x.shape], [dtype])[0]


def _places_among(node: Node, keys: list[Any]) -> Value:
    """Returns the places of elements among keys; the number of keys for others."""
    x = node.value(0)
    if isinstance(x, Words):
        known = {key: at for at, key in reversed(list(enumerate(keys)))}
        table = np.array([*[known.get(text, len(keys)) for text in x.vocabulary], len(keys)], np.int64)
        return computed_by_arrays(
            node.operator,
            lambda at: [table[np.minimum(at.astype(np.int64), len(table) - 1)]],
            [x.places],
            [x.shape],
            [np.int64],
        )[0]
    if any(isinstance(key, str) for key in keys):
        raise node.unsupported("expected strings, got numbers")
    array = np.asarray(keys, x.dtype if x.dtype.kind == "f" else np.int64)
    order = np.argsort(array, kind="stable")
    ordered = array[order]

    def compute(given: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the places of the elements by binary search."""
        if not len(ordered):
            return [np.zeros(given.shape, np.int64)]
        at = np.minimum(np.searchsorted(ordered, given), len(ordered) - 1)
        equal = ordered[at] == given
        if node.version >= 4 and np.isnan(ordered[-1]):  # it comes last, and is equal to itself here
            equal |= np.isnan(given) & (at == len(ordered) - 1)
        return [np.where(equal, order[at], len(ordered))]

    return computed_by_arrays(node.operator, compute, [x], [x.shape], [np.int64])[0]


def _one_hot(node: Node) -> Value:
    """Builds `OneHotEncoder`."""
    keys = node.get("cats_strings") or node.get("cats_int64s")
    shape = (*node.value(0).shape, len(keys))
    places, zeros = _places_among(node, list(keys)), node.get("zeros", 1)
    eye = np.eye(len(keys) + 1, len(keys), dtype=np.float32)

    def compute(at: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns a row of the identity matrix for each place, and zeros for unknown categories."""
        if not zeros and (at >= len(keys)).any():
            raise OnnxError("OneHotEncoder: expected known categories, got others")
        return [eye[at.astype(np.int64)]]

    return computed_by_arrays(node.operator, compute, [places], [shape], [np.float32])[0]


def _linear_scores(node: Node, n: int, n_weights: int | None = None) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Returns the function from rows of features to `n` linear scores, with the first of the coefficients."""
    weight = _numbers(node, "coefficients")[:n_weights].reshape(n, -1)
    held = _numbers(node, "intercepts")
    bias = held if held.size else np.zeros(1, np.float32)
    return lambda x: _rows(x).astype(np.float32) @ weight.T + bias


def _linear_regressor(node: Node) -> Value:
    """Builds `LinearRegressor`."""
    n = node.get("targets", 1)
    scores = _linear_scores(node, n)

    def compute(x: NDArray[Any]) -> NDArray[Any]:
        """Returns the targets of each row."""
        return transformed(node, scores(x)) if n > 1 else scores(x)  # as ONNX Runtime: one target stays as it is

    return _computed(node, compute, (_n_rows(node), n))


def _linear_classifier(node: Node) -> list[Value]:
    """Builds `LinearClassifier`."""
    labels = node.get("classlabels_strings") or node.get("classlabels_ints") or []
    n_features, n_weights = node.value(0).shape[-1], len(node.get("coefficients"))
    # As in ONNX Runtime: there are as many classes as intercepts, and further coefficients are ignored.
    n = len(node.get("intercepts") or []) or n_weights // (n_features or 1)
    if n * n_features > n_weights:
        raise OnnxError(f"LinearClassifier: expected {n * n_features} coefficients, got {n_weights}")
    scores = _linear_scores(node, n, n * n_features)
    is_single = n == 1 and len(labels) == 2

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the number of the label and the scores of each row."""
        made = scores(x)
        if n == 1:
            return [(made[:, 0] > 0).astype(np.int64), transformed(node, made, "complement" if is_single else "")]
        return [made.argmax(1), transformed(node, made)]

    return labelled(node, compute, labels, _n_rows(node), 2 if is_single else n)


def _kernel(node: Node, vectors: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Returns the kernel of rows with vectors."""
    kind = node.get("kernel_type", "LINEAR")
    gamma, shift, degree = (node.get("kernel_params") or [0.0, 0.0, 3.0])[:3]

    def compute(x: NDArray[Any]) -> NDArray[Any]:
        """Returns the kernel of each row of `x` with each vector."""
        x = _rows(x).astype(np.float64)
        found: NDArray[Any] = x @ vectors.T
        if kind == "RBF":
            squares = (x * x).sum(1)[:, None] + (vectors * vectors).sum(1) - 2 * found
            found = np.exp(-gamma * np.maximum(squares, 0))
        elif kind == "POLY":
            found = (gamma * found + shift) ** degree
        elif kind == "SIGMOID":
            found = np.tanh(gamma * found + shift)
        return found

    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        raise node.unsupported(f"expected a kernel of LINEAR, POLY, RBF, SIGMOID, got {kind}")
    return compute


def _vector_regressor(node: Node) -> Value:
    """Builds `SVMRegressor`."""
    n, rho = node.get("n_supports", 0), _numbers(node, "rho").astype(np.float64)
    weight = _numbers(node, "coefficients").astype(np.float64)
    vectors = _numbers(node, "support_vectors").astype(np.float64).reshape(n, -1) if n else np.zeros((0, 0))
    kernel = _kernel(node, vectors if n else weight[None])

    def compute(x: NDArray[Any]) -> NDArray[Any]:
        """Returns the target of each row, or with `one_class` its sign."""
        found = kernel(x)
        y = (found @ weight[:, None] if n else found) + rho[0]
        y = np.where(y > 0, 1.0, -1.0) if node.get("one_class", 0) else y
        return y.astype(np.float32)

    return _computed(node, compute, (_n_rows(node), 1))


def _coupled(pairs: NDArray[Any], n: int) -> NDArray[Any]:
    """Returns probabilities of classes of probabilities of pairs, by the method of Wu, Lin and Weng as in LIBSVM."""
    found = np.full((len(pairs), n), 1 / n)
    for row, p in enumerate(pairs):
        q = -p.T * p
        np.fill_diagonal(q, (p.T**2).sum(1) - np.diag(p.T) ** 2)
        guess = found[row]
        for _ in range(max(100, n)):
            qp = q @ guess
            whole = guess @ qp
            if np.abs(qp - whole).max() < 0.005 / n:
                break
            for t in range(n):
                step = (whole - qp[t]) / q[t, t]
                guess[t] += step
                whole = (whole + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
                qp = (qp + step * q[t]) / (1 + step)
                guess /= 1 + step
    return found


def _vector_classifier(node: Node) -> list[Value]:
    """Builds `SVMClassifier`."""
    labels = node.get("classlabels_strings") or node.get("classlabels_ints")
    counts, rho = node.get("vectors_per_class") or [], _numbers(node, "rho").astype(np.float64)
    weight = _numbers(node, "coefficients").astype(np.float64)
    n, n_vectors = len(labels), sum(counts)
    if not n_vectors:
        return _linear_vectors(node, labels, weight.reshape(n, -1), rho)
    kernel = _kernel(node, _numbers(node, "support_vectors").astype(np.float64).reshape(n_vectors, -1))
    weight = weight.reshape(n - 1, n_vectors)
    ends, a, b = np.cumsum([0, *counts]), _numbers(node, "prob_a"), _numbers(node, "prob_b")
    pairs = list(combinations(range(n), 2))
    mixed = np.zeros((n_vectors, len(pairs)))
    for k, (i, j) in enumerate(pairs):
        mixed[ends[i] : ends[i + 1], k] = weight[j - 1, ends[i] : ends[i + 1]]
        mixed[ends[j] : ends[j + 1], k] = weight[i, ends[j] : ends[j + 1]]

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the class with most votes of pairs, and the probabilities or scores of each row."""
        scores = kernel(x) @ mixed + rho
        votes = np.zeros((len(scores), n), np.int64)
        for k, (i, j) in enumerate(pairs):
            votes[:, i] += scores[:, k] > 0
            votes[:, j] += scores[:, k] <= 0
        if a.size:
            p = np.zeros((len(scores), n, n))
            for k, (i, j) in enumerate(pairs):
                p[:, i, j] = np.clip(1 / (1 + np.exp(scores[:, k] * a[k] + b[k])), 1e-7, 1 - 1e-7)
                p[:, j, i] = 1 - p[:, i, j]
            found = _coupled(p, n)
            return [votes.argmax(1), transformed(node, found.astype(np.float32))]
        return [votes.argmax(1), transformed(node, scores.astype(np.float32), "negative" if n == 2 else "")]

    return labelled(node, compute, labels, _n_rows(node), n if a.size or n == 2 else len(pairs))


def _linear_vectors(node: Node, labels: Sequence[Any], weight: NDArray[Any], rho: NDArray[Any]) -> list[Value]:
    """Builds `SVMClassifier` without support vectors: one linear score for each class."""
    kernel = _kernel(node, weight)

    def compute(x: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the class of the largest score, and the scores of each row."""
        scores = (kernel(x) + rho[0]).astype(np.float32)
        return [scores.argmax(1), transformed(node, scores)]

    return labelled(node, compute, labels, _n_rows(node), len(labels))


def _maps(node: Node) -> Maps:
    """Builds `ZipMap`."""
    names = node.get("classlabels_strings") or node.get("classlabels_int64s")
    x = node.value(0)
    if x.shape[-1:] != (len(names),):
        raise OnnxError(f"ZipMap: expected {len(names)} scores for each row, got shape {x.shape}")
    if len(x.shape) == 1:
        x = Value(reshape(x.variable, (1, len(names))), x.dtype, sources=x.sources)
    return Maps(x, names)


CLASSICAL: dict[tuple[str, str], Row] = {
    ("ai.onnx.ml", "ArrayFeatureExtractor"): Row(_extracted),
    ("ai.onnx.ml", "Binarizer"): Row(_binarized),
    ("ai.onnx.ml", "CategoryMapper"): Row(_category, takes_words=True),
    ("ai.onnx.ml", "DictVectorizer"): Row(_dictionary),
    ("ai.onnx.ml", "FeatureVectorizer"): Row(_vector, dtype=np.float32),
    ("ai.onnx.ml", "Imputer"): Row(_imputed),
    ("ai.onnx.ml", "LabelEncoder"): Row(_encoded, takes_words=True),
    ("ai.onnx.ml", "LinearClassifier"): Row(_linear_classifier),
    ("ai.onnx.ml", "LinearRegressor"): Row(_linear_regressor),
    ("ai.onnx.ml", "Normalizer"): Row(_normalized, dtype=np.float32),
    ("ai.onnx.ml", "OneHotEncoder"): Row(_one_hot, takes_words=True),
    ("ai.onnx.ml", "SVMClassifier"): Row(_vector_classifier),
    ("ai.onnx.ml", "SVMRegressor"): Row(_vector_regressor),
    ("ai.onnx.ml", "Scaler"): Row(_scaled, dtype=np.float32),
    ("ai.onnx.ml", "ZipMap"): Row(_maps),
}
"""One row for each operator."""
