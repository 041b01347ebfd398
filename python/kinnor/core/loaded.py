"""The base of models from files: calls with arrays on cached graphs, and access to parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from .._core import CallError
from .._graph_pool import BuildLock, Graph
from ..display import Parameters
from ..parameter import is_learned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from .._core import Variable
    from .._graph_pool import GraphPool

__all__ = ["LoadedNetwork"]


class LoadedNetwork(Generic[Graph]):
    """The base of models from files: a network that is called like a function.

    Several threads may call one model. Calls with arrays run in parallel, each on its own graph with shared parameters.
    Graphs are built one at a time.

    Args:
        title: Name of the model in error messages.
        inputs: The names of the inputs, in the order of a call.
        outputs: The names of the outputs, in order.
        cache: The cache of graphs.
    """

    def __init__(self, title: str, inputs: Sequence[str], outputs: Sequence[str], cache: Any) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._title = title
        self._lock = BuildLock(title)
        self._cache = cache

    def _given(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a call by name, in the order of `inputs`."""
        given = dict(zip(self.inputs, args, strict=False))
        if len(args) > len(self.inputs) or given.keys() & named.keys() or {*given, *named} != set(self.inputs):
            raise CallError(f"{self._title}: expected inputs {self.inputs}, got {len(args)} and {list(named)}")
        given.update(named)
        return {name: given[name] for name in self.inputs}

    def _taken(self, key: Any, build: Callable[[], tuple[GraphPool[Graph], Graph]]) -> tuple[GraphPool[Graph], Graph]:
        """A free graph for a key, and the pool to return it to. If there is none, `build` makes one under the lock."""
        pool = self._cache.pools.get(key)
        graph = None if pool is None else pool.take()
        if pool is not None and graph is not None:
            return pool, graph
        with self._lock.held():
            pool = self._cache.pools.get(key)
            graph = None if pool is None else pool.free()
            return (pool, graph) if pool is not None and graph is not None else build()

    def _unfold(self) -> None:
        """Drops graphs that do not follow changes of the parameters. Derived classes define it."""
        raise NotImplementedError

    def _all_parameters(self) -> Mapping[str, Variable]:
        """All parameters by name. Derived classes define it. It is called under the lock."""
        raise NotImplementedError

    def get_parameters(self, grad_only: bool = False) -> Parameters:
        """The parameters by name, for `solver.set_parameters`. Access ends folding.

        Args:
            grad_only: Whether to leave out parameters that need no gradient.
        """
        with self._lock.held():
            self._unfold()
            found = self._all_parameters()
        return Parameters((name, x) for name, x in found.items() if x.need_grad or not grad_only)

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """The parameters that can be trained, with their names. Access ends folding.

        Running statistics are left out; `get_parameters` has them.

        Yields:
            Name and variable.
        """
        for name, variable in self.get_parameters().items():
            if self._is_trained(name, variable):
                yield name, variable

    def _is_trained(self, name: str, variable: Variable) -> bool:
        """False for running statistics."""
        return is_learned(variable)

    def parameters(self) -> Iterator[Variable]:
        """The parameters that can be trained, frozen ones included. Access ends folding.

        Yields:
            Variables in the order of the file.
        """
        for _, variable in self.named_parameters():
            yield variable

    def train(self, mode: bool = True) -> Self:
        """Does nothing: the functions of a file compute the same in training and in evaluation.

        Args:
            mode: Not looked at.

        Returns:
            The model.
        """
        return self

    def eval(self) -> Self:
        """Does nothing, as `train`.

        Returns:
            The model.
        """
        return self
