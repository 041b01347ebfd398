"""Arrays divided over processes: the part of each process, and gathering of the whole array.

A parameter is known to be divided by its initializer, a `PartOf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core import ParameterError, Variable
from ..initializer import BaseInitializer
from ..parameter import ParameterInfo
from ..parameter.tree import here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ..initializer import Initializer
    from .communicator import Communicator
    from .transport import Transport

__all__ = ["PartOf", "Source", "Spread", "gathered", "mark", "sources", "spread_of"]


class Spread(NamedTuple):
    """The division of an array into equal parts along an axis, one for each process.

    Attributes:
        shape: The shape of the whole array.
        axis: The divided axis.
        ranks: The ranks of the processes, in the order of their parts.
        place: The index of this process's part.
    """

    shape: tuple[int, ...]
    axis: int
    ranks: list[int]
    place: int

    def take(self, whole: NDArray[Any]) -> NDArray[Any]:
        """This process's part of the whole array."""
        return np.split(whole, len(self.ranks), self.axis)[self.place]


class PartOf(BaseInitializer):
    """An initializer of this process's part of an array. It draws the whole array by `whole`, and keeps the part."""

    def __init__(self, whole: Initializer, shape: Sequence[int], axis: int, members: Transport) -> None:
        self.whole: Any = whole
        self.spread = Spread(tuple(shape), axis, list(members.ranks), members.rank)

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """This process's part of the initial values."""
        return self.spread.take(np.asarray(self.whole(self.spread.shape)))


def mark(name: str, part: PartOf) -> None:
    """Marks a parameter of the current scope as divided. This includes parameters that were loaded before."""
    parameter = here()[name]
    if isinstance(parameter, Variable):
        parameter.info = ParameterInfo(part)


def spread_of(v: Variable) -> Spread | None:
    """The division of a registered parameter. None if this process has the whole array."""
    initializer = getattr(v.info, "initializer", None)
    if not isinstance(initializer, PartOf) or len(initializer.spread.ranks) == 1:
        return None
    return initializer.spread


class Source(NamedTuple):
    """The processes that have an array or its parts.

    Attributes:
        ranks: The rank of the process with the whole array, or the ranks with its parts, in order.
        axis: The axis of the parts; None for a whole array.
    """

    ranks: list[int]
    axis: int | None


def sources(tables: Sequence[Mapping[str, Any]]) -> dict[str, Source]:
    """The source of each array: the first process that has it, or the first group that has its parts.

    Args:
        tables: For each process, the descriptions of its arrays by name: shape, type, axis and ranks. Axis and ranks
            are None for a whole array. Further items are ignored.

    Returns:
        The sources by name, the same on all processes.

    Raises:
        ParameterError: If processes have different arrays under one name. All processes raise it.
    """
    found: dict[str, Source] = {}
    first: dict[str, tuple[int, Any]] = {}
    for rank, table in enumerate(tables):
        for name, told in table.items():
            shape, dtype, axis, ranks = told[:4]
            if name not in found:
                found[name] = Source([rank] if ranks is None else ranks, axis)
                first[name] = (rank, told[:3])
            elif [shape, dtype, axis] != first[name][1]:
                other, (its_shape, its_dtype, its_axis) = first[name]
                raise ParameterError(
                    f"save_checkpoint: expected {name!r} to be the same array on all processes, got "
                    f"{_described(its_shape, its_dtype, its_axis)} on rank {other} and "
                    f"{_described(shape, dtype, axis)} on rank {rank}"
                )
    return found


def gathered(
    own: Mapping[str, NDArray[Any]],
    places: Mapping[str, Source],
    tables: Sequence[Mapping[str, Any]],
    communicator: Communicator,
) -> dict[str, NDArray[Any]]:
    """Gathers whole arrays on the first process. All processes must call it.

    Args:
        own: This process's arrays by name.
        places: The source of each array.
        tables: The descriptions of each process's arrays, as for `sources`.
        communicator: The processes.

    Returns:
        Arrays by name, in the order of `places`. Empty on all other processes.
    """
    members = communicator._members("save_checkpoint", "world")
    whole = {}
    for name, source in places.items():
        if members.rank != 0:
            if members.rank in source.ranks:
                with communicator._watched(f"save_checkpoint, sending {name!r}"):
                    members.send(_bytes(np.ascontiguousarray(own[name])), 0, 0)
            continue
        parts = []
        for rank in source.ranks:
            if rank == 0:
                parts.append(own[name])
                continue
            shape, dtype = tables[rank][name][:2]
            values = np.empty(shape, dtype)
            with communicator._watched(f"save_checkpoint, receiving {name!r} from rank {rank}"):
                members.receive(_bytes(values), rank, 0)
            parts.append(values)
        whole[name] = parts[0] if source.axis is None else np.concatenate(parts, source.axis)
    return whole


def _bytes(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array's bytes, because MPI does not know all element types."""
    return array.reshape(-1).view(np.uint8)


def _described(shape: Any, dtype: Any, axis: Any) -> str:
    """An array's description in errors."""
    return f"{tuple(shape)} {dtype}" + ("" if axis is None else f" (a part along axis {axis})")
