"""Losses and metrics that `fit` knows by name."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .. import functions as F
from .._core import CallError, RangeError, ShapeError
from .._suggest import spelled
from ..context import Context, context_scope, get_current_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import NoReturn

    from .._core import Variable

__all__ = ["LOSSES", "METRICS", "LossName", "Measure", "MetricName", "in_float32", "loss_of", "metrics_of"]

Measure: TypeAlias = "Callable[..., Variable]"
LossName: TypeAlias = Literal["cross_entropy", "binary_cross_entropy", "mse"]
MetricName: TypeAlias = Literal["accuracy", "cross_entropy", "binary_cross_entropy", "mse"]


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


def _of_shape(op: str, y: Variable, t: Variable) -> Variable:
    """Targets in the shape of the outputs, up to a last axis of size 1. Raises ShapeError for targets of other shapes.

    Targets of shape (n, 1) and outputs of shape (n,) would be broadcast to all pairs.
    """
    if t.shape == y.shape:
        return t
    if t.shape in ((*y.shape, 1), y.shape[:-1] if y.shape[-1:] == (1,) else y.shape):
        return F.reshape(t, y.shape)
    raise ShapeError(f"{op}: expected targets of the shape of the outputs, {y.shape}, got shape {t.shape}")


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
    if y.ndim and y.shape[-1] == 1:
        raise ShapeError(
            f"cross_entropy: expected outputs of at least two classes, got shape {y.shape}; for one logit of each row "
            'the loss is "binary_cross_entropy"'
        )
    with in_float32():
        return F.mean(F.softmax_cross_entropy(y, _labels("cross_entropy", y, t), axis=y.ndim - 1))


def binary_cross_entropy(y: Variable, t: Variable) -> Variable:
    """Mean of sigmoid and cross entropy of logits and targets from 0 to 1."""
    with in_float32():
        return F.mean(F.sigmoid_cross_entropy(y, _of_shape("binary_cross_entropy", y, t)))


def mse(y: Variable, t: Variable) -> Variable:
    """Mean squared error."""
    with in_float32():
        return F.mean(F.squared_error(y, _of_shape("mse", y, t)))


def accuracy(y: Variable, t: Variable) -> Variable:
    """Share of rows whose largest output is at the label. Rows with a negative label do not count."""
    if y.ndim < 2 or y.shape[-1] == 1:
        raise ShapeError(
            f"accuracy: expected an output for each of at least two classes, got shape {y.shape}; one output of each "
            'row is compared with 0 if the loss is "binary_cross_entropy", and with 0.5 if it is '
            "kinnor.functions.binary_cross_entropy"
        )
    labels = _labels("accuracy", y, t)
    with in_float32():
        counted = F.greater_equal_scalar(labels, 0)
        wrong = F.sum(F.top_n_error(y, labels, axis=y.ndim - 1))
        return 1 - wrong / F.maximum_scalar(F.sum(counted), 1)


def binary_accuracy(y: Variable, t: Variable, threshold: float = 0.0) -> Variable:
    """Share of outputs that are on the side of the threshold where the target is: above it for targets above 0.5."""
    t = _of_shape("accuracy", y, t)
    with in_float32():
        return F.mean(F.equal(F.greater_scalar(y, threshold), F.greater_scalar(t, 0.5)))


def probability_accuracy(y: Variable, t: Variable) -> Variable:
    """The `binary_accuracy` of probabilities."""
    return binary_accuracy(y, t, 0.5)


def regression_accuracy(y: Variable, t: Variable) -> NoReturn:
    """Raises CallError: values that are not classes have no accuracy."""
    raise CallError("fit: expected a metric for values, such as 'mse', got 'accuracy', which is for classes")


LOSSES: dict[str, Measure] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "mse": mse,
}
"""The losses that can be chosen by name."""
METRICS: dict[str, Measure] = {"accuracy": accuracy, **LOSSES}
"""The metrics that can be chosen by name. All losses are metrics too."""


def _accuracy_for(loss: Measure | None) -> Measure:
    """The accuracy of what a loss trains: classes, logits of yes or no, or probabilities of yes."""
    of = {
        binary_cross_entropy: binary_accuracy,
        F.sigmoid_cross_entropy: binary_accuracy,
        F.binary_cross_entropy: probability_accuracy,
        mse: regression_accuracy,
        F.squared_error: regression_accuracy,
        F.absolute_error: regression_accuracy,
        F.huber_loss: regression_accuracy,
    }
    found: Measure = next((measure for function, measure in of.items() if function is loss), accuracy)
    return found


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
        near = f"; did you mean {ELSEWHERE[name]!r}?" if ELSEWHERE.get(name) in known else spelled(name, known)
        raise RangeError(f"fit: expected `{what}` to be a function or one of {', '.join(known)}, got {name!r}{near}")
    return known[name]


def loss_of(loss: Measure | str | None) -> Measure | None:
    """The function of a loss that may be given by its name."""
    return _named("loss", loss, LOSSES) if isinstance(loss, str) else loss


def metrics_of(
    metrics: Mapping[str, Measure | str] | Iterable[Measure | str] | str, loss: Measure | None
) -> dict[str, Measure]:
    """Functions by name, of names, functions or both.

    Args:
        metrics: The metrics, as `fit` takes them.
        loss: The loss, which says of what kind the outputs are that the accuracy is of.
    """
    if isinstance(metrics, str):
        metrics = [metrics]
    if hasattr(metrics, "items"):
        pairs: list[tuple[str, Any]] = list(metrics.items())
    else:
        pairs = [(each if isinstance(each, str) else getattr(each, "__name__", repr(each)), each) for each in metrics]
    known = {**METRICS, "accuracy": _accuracy_for(loss)}
    return {name: _named("metrics", each, known) if isinstance(each, str) else each for name, each in pairs}
