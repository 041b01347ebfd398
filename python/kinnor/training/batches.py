"""Batches of an epoch, from arrays, data iterators or any other collection."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _check, _core, random
from .. import functions as F
from .._core import CallError, ShapeError, Variable
from ..core import Module
from ..data.data_iterator import DataIterator
from ..grad_mode import no_grad
from .losses import in_float32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from .losses import Measure

__all__ = ["Batch", "BatchGraph", "BatchGraphs", "Batches", "batches"]

Batch: TypeAlias = "tuple[NDArray[Any], ...]"
"""The arrays of a batch, with a row for each example."""

SEED = 313
"""The orders of epochs follow from it, so that a run that goes on has the orders of one that was not interrupted."""


class Batches:
    """The batches of each epoch: their number, and an iterator over them."""

    iterator: DataIterator | None = None
    """The data iterator, whose position is part of a checkpoint."""

    def __len__(self) -> int:
        raise NotImplementedError

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        raise NotImplementedError


class ArrayBatches(Batches):
    """Rows of arrays, in a random order that depends on the number of the epoch."""

    def __init__(self, arrays: tuple[Any, ...], batch_size: int, is_training: bool, shuffle: bool) -> None:
        self.arrays = [np.asarray(each) for each in arrays]
        sizes = {each.shape[:1] for each in self.arrays}
        if len(sizes) != 1 or sizes in ({()}, {(0,)}):
            shapes = [each.shape for each in self.arrays]
            raise ShapeError(f"fit: expected arrays with one and the same number of rows, got shapes {shapes}")
        self.size = len(self.arrays[0])
        self.batch_size = min(_check.count("fit", "batch_size", batch_size), self.size)
        self.is_training, self.shuffle = is_training, shuffle and is_training

    def __len__(self) -> int:
        whole, rest = divmod(self.size, self.batch_size)
        return whole if self.is_training or not rest else whole + 1

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        order = np.random.RandomState([SEED, number]).permutation(self.size) if self.shuffle else np.arange(self.size)
        for place in range(len(self)):
            rows = order[place * self.batch_size : (place + 1) * self.batch_size]
            yield tuple(each[rows] for each in self.arrays)


class IteratorBatches(Batches):
    """The whole batches of a data iterator, which goes on from epoch to epoch."""

    def __init__(self, iterator: DataIterator) -> None:
        self.iterator: DataIterator = iterator
        if iterator.stops and iterator.size < iterator.batch_size:
            expected = f"a DataIterator with at least one batch of {iterator.batch_size} examples"
            raise ShapeError(f"fit: expected {expected}, got {iterator.size} examples and stop_exhausted=True")

    def __len__(self) -> int:
        return max(1, self.iterator.size // self.iterator.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        for _ in range(len(self)):
            try:
                batch = self.iterator.next()
            except StopIteration:
                batch = iter(self.iterator).next()
            yield batch


class WholeEpochBatches(IteratorBatches):
    """All examples of a data iterator, each once in an epoch. The last batch is cut to the examples that are left."""

    def __len__(self) -> int:
        iterator = self.iterator
        return len(iterator) if iterator.stops else -(-iterator.size // iterator.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        left = self.iterator.size
        self.iterator.restart()
        for _ in range(len(self)):
            batch = self.iterator.next()
            yield tuple(each[:left] for each in batch)
            left -= self.iterator.batch_size


class CollectionBatches(Batches):
    """A collection that is iterated over in each epoch."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection

    def __len__(self) -> int:
        return len(self.collection)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        for batch in self.collection:
            given = batch if isinstance(batch, (tuple, list)) else (batch,)
            yield tuple(np.asarray(each) for each in given)


def _holds_arrays(items: list[Any]) -> bool:
    """True for a batch: a list of arrays."""
    return all(hasattr(each, "shape") for each in items)


def batches(data: Any, batch_size: int, is_training: bool, shuffle: bool = True) -> Batches:
    """The batches of data as `fit` takes it.

    Args:
        data: A tuple of arrays, a `DataIterator`, or a collection of batches with a length.
        batch_size: Number of rows of a batch, of arrays.
        is_training: True to leave out rows that do not fill a batch, of arrays, or to take them in the next epoch, of
            an iterator.
        shuffle: True for a random order, of arrays for training.

    Raises:
        CallError: If it is something else.
    """
    if isinstance(data, DataIterator):
        return IteratorBatches(data) if is_training else WholeEpochBatches(data)
    if isinstance(data, tuple) and data and all(hasattr(each, "shape") for each in data):
        return ArrayBatches(data, batch_size, is_training, shuffle)
    if isinstance(data, tuple) and data and all(isinstance(each, list) and not _holds_arrays(each) for each in data):
        raise CallError("fit: expected a tuple of arrays, got a tuple of lists; numpy.asarray makes an array of each")
    is_other = isinstance(data, dict) or hasattr(data, "shape")
    if not is_other and hasattr(data, "__len__") and hasattr(data, "__iter__") and len(data):
        return CollectionBatches(data)
    hint = "; inputs and targets are one tuple: (inputs, targets)" if hasattr(data, "shape") else ""
    if isinstance(data, dict):
        hint = "; tuple(data.values()) has its arrays"
    told = f"fit: expected a tuple of arrays, a DataIterator or a list of batches as data, got {type(data).__name__}"
    raise CallError(told + hint)


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
                if not any(text in str(error) for text in ("positional argument", "arguments without a name")):
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
