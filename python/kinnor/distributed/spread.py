"""Arrays that lie in parts on several processes: which part a process has, and how the whole becomes one file.

Knows parameters by what they were made with, and which process has which array; knows no files.
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
    """How an array is spread: each process has an equal part along an axis.

    Attributes:
        shape: The shape of the whole.
        axis: The axis that is divided.
        ranks: Who has the parts, in their order.
        place: The number of this process's part.
    """

    shape: tuple[int, ...]
    axis: int
    ranks: list[int]
    place: int

    def take(self, whole: NDArray[Any]) -> NDArray[Any]:
        """This process's part of the whole."""
        return np.split(whole, len(self.ranks), self.axis)[self.place]


class PartOf(BaseInitializer):
    """A part of what an initializer makes for the whole: the numbers of one process."""

    def __init__(self, whole: Initializer, shape: Sequence[int], axis: int, members: Transport) -> None:
        self.whole: Any = whole
        self.spread = Spread(tuple(shape), axis, list(members.ranks), members.rank)

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """This process's part of the initial values."""
        return self.spread.take(np.asarray(self.whole(self.spread.shape)))


def mark(name: str, part: PartOf) -> None:
    """Note of a parameter of the current scope that it is a part, also if it was there before (as loaded ones are)."""
    parameter = here()[name]
    if isinstance(parameter, Variable):
        parameter.info = ParameterInfo(part)


def spread_of(v: Variable) -> Spread | None:
    """How a registered parameter is spread; None where this process has the whole."""
    initializer = getattr(v.info, "initializer", None)
    if not isinstance(initializer, PartOf) or len(initializer.spread.ranks) == 1:
        return None
    return initializer.spread


class Source(NamedTuple):
    """Where an array is.

    Attributes:
        ranks: The process that has it, or those that have its parts, in order.
        axis: The axis of the parts; None for a whole one.
    """

    ranks: list[int]
    axis: int | None


def sources(tables: Sequence[Mapping[str, Any]]) -> dict[str, Source]:
    """Where each array is: at the first process that has it, or in the parts of the first group that has them.

    Args:
        tables: What each process has by name: shape, type, axis and ranks, of which the last two are None for a whole
            array; what follows is not looked at.

    Returns:
        The same on all processes.

    Raises:
        ParameterError: If processes have different arrays under one name: on every process.
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
    """The whole arrays, on the first process; the others send what they have. All processes call it.

    Args:
        own: What this process has.
        places: Where each array is.
        tables: What each process has.
        communicator: The processes.

    Returns:
        Arrays by name, in the order of `places`; none on other processes than the first.
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
    """The memory of an array: MPI does not know all types."""
    return array.reshape(-1).view(np.uint8)


def _described(shape: Any, dtype: Any, axis: Any) -> str:
    return f"{tuple(shape)} {dtype}" + ("" if axis is None else f" (a part along axis {axis})")
