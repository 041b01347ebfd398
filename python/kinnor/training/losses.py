"""Losses and metrics that `fit` knows by name."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .. import functions as F
from .._core import RangeError, ShapeError
from .._suggest import question
from ..context import Context, context_scope, get_current_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from .._core import Variable

__all__ = ["LOSSES", "METRICS", "LossName", "Measure", "MetricName", "in_float32", "loss_of", "metrics_of"]

Measure: TypeAlias = "Callable[..., Variable]"
"""A function of output and target: a loss or a metric."""
LossName: TypeAlias = Literal["cross_entropy", "binary_cross_entropy", "mse"]
"""The losses that `fit` knows by name."""
MetricName: TypeAlias = Literal["accuracy", "cross_entropy", "binary_cross_entropy", "mse"]
"""The metrics that `fit` knows by name."""


def in_float32() -> AbstractContextManager[Any]:
    """A scope that computes in float32 if the current context has 16 bits, in which a mean keeps two or three digits.

    Returns:
        A context manager.
    """
    current = get_current_context()
    if current.compute_type not in ("half", "bfloat16"):
        return nullcontext()
    return context_scope(Context(["cpu:float"], current.array_class, current.device_id))


def _aligned(y: Variable, t: Variable) -> Variable:
    """Targets with the number of axes of the outputs: labels get a last axis of size 1."""
    return F.reshape(t, (*t.shape, 1)) if t.ndim == y.ndim - 1 else t


def _labels(op: str, y: Variable, t: Variable) -> Variable:
    """Targets as class numbers with a last axis of size 1. Raises ShapeError for one-hot rows."""
    if t.shape == y.shape and y.ndim and y.shape[-1] > 1:
        raise ShapeError(
            f"{op}: expected the number of the class of each row, shape {y.shape[:-1]}, got shape {t.shape}; "
            "argmax(axis=-1) of one-hot rows gives the numbers"
        )
    return _aligned(y, t)


def cross_entropy(y: Variable, t: Variable) -> Variable:
    """Mean of softmax and cross entropy of logits (..., classes) and labels (...) or (..., 1)."""
    with in_float32():
        return F.mean(F.softmax_cross_entropy(y, _labels("cross_entropy", y, t), axis=y.ndim - 1))


def binary_cross_entropy(y: Variable, t: Variable) -> Variable:
    """Mean of sigmoid and cross entropy of logits and targets from 0 to 1."""
    with in_float32():
        return F.mean(F.sigmoid_cross_entropy(y, _aligned(y, t)))


def mse(y: Variable, t: Variable) -> Variable:
    """Mean squared error."""
    with in_float32():
        return F.mean(F.squared_error(y, _aligned(y, t)))


def accuracy(y: Variable, t: Variable) -> Variable:
    """Share of rows whose largest output is at the label."""
    with in_float32():
        return 1 - F.mean(F.top_n_error(y, _labels("accuracy", y, t), axis=y.ndim - 1))


LOSSES: dict[str, Measure] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "mse": mse,
}
"""The losses that can be chosen by name."""
METRICS: dict[str, Measure] = {"accuracy": accuracy, **LOSSES}
"""The metrics that can be chosen by name. All losses are metrics too."""

ELSEWHERE = {
    "acc": "accuracy",
    "bce": "binary_cross_entropy",
    "categorical_crossentropy": "cross_entropy",
    "ce": "cross_entropy",
    "mean_squared_error": "mse",
    "nll": "cross_entropy",
    "sparse_categorical_crossentropy": "cross_entropy",
}
"""Names that other libraries have for the same loss or metric."""


def _named(what: str, name: str, known: Mapping[str, Measure]) -> Measure:
    """Returns the loss or metric of this name. Raises RangeError for an unknown name."""
    if name not in known:
        near = f"; did you mean {ELSEWHERE[name]!r}?" if ELSEWHERE.get(name) in known else question(name, known)
        raise RangeError(f"fit: expected `{what}` to be a function or one of {', '.join(known)}, got {name!r}{near}")
    return known[name]


def loss_of(loss: Measure | str | None) -> Measure | None:
    """The function of a loss that may be given by its name."""
    return _named("loss", loss, LOSSES) if isinstance(loss, str) else loss


def metrics_of(metrics: Mapping[str, Measure | str] | Iterable[Measure | str] | str) -> dict[str, Measure]:
    """Functions by name, of names, functions or both."""
    if isinstance(metrics, str):
        metrics = [metrics]
    if hasattr(metrics, "items"):
        pairs: list[tuple[str, Any]] = list(metrics.items())
    else:
        pairs = [(each if isinstance(each, str) else getattr(each, "__name__", repr(each)), each) for each in metrics]
    return {name: _named("metrics", each, METRICS) if isinstance(each, str) else each for name, each in pairs}
