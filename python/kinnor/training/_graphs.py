"""Graphs of batches: the model with its loss and metrics, built for each shape of batch."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core, random
from .. import functions as F
from .._core import CallError, Variable
from ..core import Module
from ..grad_mode import no_grad
from .losses import in_float32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .batches import Batch
    from .losses import Measure

__all__ = ["BatchGraph", "BatchGraphs"]

MOST_GRAPHS = 8
"""The number of shapes of batches that static graphs are kept for."""


OWN_NAMES = ("epoch", "learning_rate", "loss", "seconds")
"""Names of the values that each row of a history has."""


class BatchGraph(NamedTuple):
    """The graph of a batch: its inputs, the loss, and further values by name."""

    inputs: list[Variable]
    """A variable for each array of the batch."""
    loss: Variable
    """The loss."""
    values: dict[str, Variable]
    """The metrics, and further values of the model, by name."""


class BatchGraphs:
    """Builds graphs of batches, for training and for validation."""

    def __init__(self, model: Any, loss: Measure | None, metrics: dict[str, Measure]) -> None:
        if metrics and loss is None:
            raise CallError(
                "fit: expected `loss` with `metrics`, got metrics alone; the model may return values itself"
            )
        self.model, self.loss, self.metrics = model, loss, metrics
        self.kept: dict[Any, BatchGraph] = {}
        self.awaited: dict[Any, Any] = {}
        self.modes: dict[Module, bool] = {}
        self.takes_training = not isinstance(model, Module) and "training" in _arguments(model)

    @contextmanager
    def modes_kept(self) -> Iterator[None]:
        """Put all modules back into their modes when the block ends."""
        if isinstance(self.model, Module):
            self.modes = {module: module.training for module in self.model.modules()}
        try:
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        """Gives all modules the training modes that they had before `fit`."""
        for module, mode in self.modes.items():
            module.__dict__["training"] = mode

    def of(self, batch: Batch, training: bool) -> BatchGraph:
        """The graph of a batch, with the values of the batch in its inputs; computed in dynamic mode only."""
        if _core.auto_forward_mode():
            return self._build([Variable.from_numpy_array(each) for each in batch], training)
        key = (training, *(each.shape for each in batch))
        if key not in self.kept:
            if len(self.kept) >= MOST_GRAPHS:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = self._build([Variable(each.shape) for each in batch], training)
            if key in self.awaited:
                _set_positions(self.kept[key], self.awaited.pop(key))
        graph = self.kept[key]
        for x, each in zip(graph.inputs, batch, strict=True):
            x.d = each
        return graph

    def positions(self) -> list[Any]:
        """The positions of functions with a seed of their own in the kept graphs, for a checkpoint."""
        drawn = {key: random.positions(_outputs(graph)) for key, graph in self.kept.items()}
        return [[list(key), found] for key, found in (self.awaited | drawn).items() if found]

    def set_positions(self, saved: list[Any]) -> None:
        """Continues functions with a seed of their own at saved positions, in later graphs when they are built."""
        self.awaited = {(key[0], *map(tuple, key[1:])): found for key, found in saved}
        for key in [key for key in self.kept if key in self.awaited]:
            _set_positions(self.kept[key], self.awaited.pop(key))

    def _build(self, inputs: list[Variable], training: bool) -> BatchGraph:
        """Builds the graph of a step in training or evaluation mode. Evaluation graphs have no gradients."""
        if isinstance(self.model, Module):
            self._restore()
            if not training or not self.model.training:
                self.model.train(training)
        if training:
            return self._computed(inputs, training)
        with no_grad():
            return self._computed(inputs, training)

    def _computed(self, inputs: list[Variable], training: bool) -> BatchGraph:
        """Calls model, loss and metrics on the inputs. Returns the graph with their means."""
        more = {"training": training} if self.takes_training else {}
        if self.loss is None:
            try:
                made = self.model(*inputs, **more)
            except TypeError as error:
                if "positional argument" not in str(error):
                    raise
                raise CallError(
                    f"fit: expected `loss`, or a model that takes all {len(inputs)} arrays of a batch and returns the "
                    f"loss, got no `loss` and {error}"
                ) from error
            loss, values = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
        else:
            if len(inputs) < 2:
                raise CallError("fit: expected batches of inputs and a target for `loss`, got one array")
            y, target = self._called(inputs[:-1], more), inputs[-1]
            loss = self.loss(y, target)
            values = {name: metric(y, target) for name, metric in self.metrics.items()}
        for name in values:
            if name in OWN_NAMES or str(name).startswith("val_"):
                raise CallError(f"fit: expected other names of values than fit's own, got {name!r}")
        if not isinstance(loss, Variable):
            raise CallError(f"fit: expected a Variable as the loss, got {type(loss).__name__}")
        means = {name: _mean("metrics", name, value) for name, value in dict(values).items()}
        return BatchGraph(inputs, _mean("loss", "loss", loss), means)

    def _called(self, inputs: list[Variable], more: dict[str, bool]) -> Any:
        """Calls the model. Raises CallError if the number of arrays is not the number of its inputs."""
        call = self.model.call if isinstance(self.model, Module) else self.model
        try:
            inspect.signature(call).bind(*inputs, **more)
        except ValueError:  # It has no signature.
            pass
        except TypeError as error:
            shapes = ", ".join(str(x.shape) for x in inputs)
            expected = f"a model that takes the arrays of a batch but the last, of shapes {shapes}"
            hint = "columns x__0 and x__1 of a CSV file are one array"
            raise CallError(f"fit: expected {expected}, got {error}; {hint}") from error
        return self.model(*inputs, **more)


def _outputs(graph: BatchGraph) -> list[Variable]:
    """The loss and the values of a graph."""
    return [graph.loss, *graph.values.values()]


def _set_positions(graph: BatchGraph, found: Any) -> None:
    """Continues the random functions of a graph at saved positions. Raises ParameterError if it has others."""
    random.set_positions(_outputs(graph), found, "a model")


def _arguments(function: Any) -> Mapping[str, Any]:
    """Returns the parameters of a function's signature, or nothing if it has none."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _mean(what: str, name: str, value: Any) -> Variable:
    """Returns the mean of a result, after a check that it is a Variable."""
    if not isinstance(value, Variable):
        raise CallError(f"fit: expected `{what}` to give Variables, got {type(value).__name__} for {name!r}")
    with in_float32():
        return value if value.size == 1 else F.mean(value)
