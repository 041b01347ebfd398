"""What carries arrays between processes: MPI by `mpi4py`, or nothing where there is one process.

Knows collectives of whole, contiguous NumPy arrays; knows no variables. Nothing of a transport is written here.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from .._core import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["CommunicatorError", "Mpi", "OneProcess", "Transport", "connect", "is_slow", "measure", "started_by_mpi"]

SLOW = 1e9
"""Bytes a second below which a thread waits for the link while the run goes on. Faster links are memory, whose sums
take the cores that the run needs."""

LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
"""Variables of the environment that say that MPI started this process."""

LOOKING = 2e-4
"""Seconds that a process looks again and again whether what it waits for is there. Then it sleeps between looks."""

ON_ITS_WAY = 1.0
"""Seconds that a message may take."""

SHORTEST, LONGEST = 5e-5, 2e-4
"""Seconds of the first sleep and of the last ones."""


class CommunicatorError(Error):
    """A collective that cannot be done, or whose processes do not agree on it."""


class Transport(Protocol):
    """Collectives of the processes of a group. Each process of the group calls them in the same order."""

    rank: int
    size: int
    local_rank: int
    ranks: list[int]
    """The numbers of the group's processes in the world."""

    def group(self, ranks: Sequence[int]) -> Transport | None:
        """The processes of these ranks; None where this process is not one of them. All of `self` call it."""

    def beside(self) -> Transport:
        """The same processes for a thread: its sums do not meet those of the program. All of `self` call it."""

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Put the sum over all processes into each one's array."""

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Put the sum over all processes into the array of one of them."""

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Copy the array of one process to all others."""

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Put the sum over all processes of the n-th part into the n-th one's array."""

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Put the arrays of all processes, one after the other, into each one's `parts`."""

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Send the n-th part to the n-th process; receive what each one has for this one, `counts[rank]` elements."""

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Send an array to one process."""

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Send an array, which stays as it is until the request that this returns is done: `Test()`, `finish`."""

    def finish(self, request: Any) -> None:
        """Wait for a request."""

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Receive an array from one process."""

    def exchange(self, text: str) -> list[str]:
        """What all processes have to say, by rank."""

    def barrier(self) -> None:
        """Wait for all."""

    def abort(self, code: int = 1) -> NoReturn:
        """End all processes of the program."""


class OneProcess:
    """A program of one process: its sums are its own values."""

    rank = 0
    size = 1
    local_rank = 0

    def __init__(self) -> None:
        self.ranks = [0]

    def group(self, ranks: Sequence[int]) -> OneProcess | None:
        """The same process, if it is in the group."""
        return OneProcess() if 0 in ranks else None

    def beside(self) -> OneProcess:
        """The same process."""
        return self

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Leave the array as it is."""

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Leave the array as it is."""

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Leave the array as it is."""

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Copy the only part."""
        own[...] = parts

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Copy the only array."""
        parts[...] = own

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Copy the only part."""
        received[...] = parts

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Refuse: there is nobody else."""
        raise CommunicatorError(f"send: expected another process as {to}, got a program of one process")

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Refuse: there is nobody else."""
        self.send(array, to, tag)

    def finish(self, request: Any) -> None:
        """Go on: nothing was sent."""

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Refuse: there is nobody else."""
        raise CommunicatorError(f"receive: expected another process as {source}, got a program of one process")

    def exchange(self, text: str) -> list[str]:
        """The text alone."""
        return [text]

    def barrier(self) -> None:
        """Go on."""

    def abort(self, code: int = 1) -> NoReturn:
        """End the process."""
        os._exit(code)


class Ends:
    """A process's record of other processes that have ended. All its groups share it.

    Attributes:
        missing: Reasons for calls that wait for other processes to raise an error.
        entered: Number of collectives that this process has entered, by group.
        ended: The same numbers of ended processes, by rank in the world, with the text for errors.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.entered: dict[str, int] = {}
        self.ended: dict[int, tuple[dict[str, int], str]] = {}

    def enter(self, group: str) -> int:
        """Count a collective; returns its number in the group.

        Args:
            group: The name of the group, which is the same on all of its processes.
        """
        number = self.entered[group] = self.entered.get(group, 0) + 1
        return number

    def refuse(self, group: str, number: int, ranks: Sequence[int]) -> None:
        """Raise an error if a process will never come to a collective.

        Args:
            group: The name of the group.
            number: That of the collective.
            ranks: The processes of the group.

        Raises:
            CommunicatorError: If one has ended before.
        """
        told = [self.ended[r][1] for r in ranks if r in self.ended and self.ended[r][0].get(group, 0) < number]
        if told:
            raise CommunicatorError("expected all ranks in a collective, got\n  " + "\n  ".join(told))


class Mpi:
    """Processes that MPI started.

    MPI keeps a core busy while it waits. So processes meet before each collective, where they wait asleep and for
    as long as nobody is known to be missing, and enter it together.

    Args:
        handle: A communicator of `mpi4py`.
        ranks: The numbers of its processes in the world.
        name: The name of the group, which is the same on all of its processes.
        ends: What is known of processes that never come; groups share it.
    """

    def __init__(self, handle: Any, ranks: list[int], name: str = "world", ends: Ends | None = None) -> None:
        from mpi4py import MPI

        self._handle = handle
        self._library = MPI
        self._name, self._n_groups = name, 0
        self.ends = Ends() if ends is None else ends
        self._left: list[Any] = []
        self._beside: Mpi | None = None
        self.rank, self.size, self.ranks = handle.Get_rank(), handle.Get_size(), ranks
        self.local_rank = _local_rank(self.rank)

    def group(self, ranks: Sequence[int]) -> Mpi | None:
        """The processes of these ranks."""
        members = self._handle.Get_group().Incl([self.ranks.index(rank) for rank in ranks])
        self._meet()
        handle = self._handle.Create(members)
        self._n_groups += 1
        name = f"{self._name}/{self._n_groups}"
        return None if handle == self._library.COMM_NULL else Mpi(handle, list(ranks), name, self.ends)

    def beside(self) -> Mpi:
        """The same processes for a thread, made once."""
        if self._beside is None:
            self._meet()
            self._beside = MpiBeside(self._handle.Dup(), self.ranks, f"{self._name}/beside", self.ends)
        return self._beside

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Sum in place, without a copy."""
        self._meet()
        self._handle.Allreduce(self._library.IN_PLACE, array)

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Sum in place at `root`; the others keep what they have."""
        self._meet()
        if self.rank == root:
            self._handle.Reduce(self._library.IN_PLACE, array, root=root)
        else:
            self._handle.Reduce(array, None, root=root)

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Copy from `root`."""
        self._meet()
        self._handle.Bcast(array, root=root)

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Sum each part where it belongs."""
        self._meet()
        self._handle.Reduce_scatter(parts, own, list(counts))

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Gather parts of any lengths."""
        self._meet()
        self._handle.Allgatherv(own, [parts, list(counts)])

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Send a part of any length to each."""
        self._meet()
        mine = [counts[self.rank]] * self.size
        self._handle.Alltoallv([parts, list(counts)], [received, mine])

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Send; returns when the array may be written again."""
        self.finish(self.start_sending(array, to, tag))

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Begin to send."""
        self._refuse_alone()
        return self._handle.Isend(array, dest=to, tag=tag)

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Receive into an array of the same size."""
        self._refuse_alone()
        self.finish(self._handle.Irecv(array, source=source, tag=tag), source=self.ranks[source])

    def exchange(self, text: str) -> list[str]:
        """Gather short texts."""
        self._meet()
        return list(self._handle.allgather(text))

    def barrier(self) -> None:
        """Wait for all."""
        self._meet()

    def abort(self, code: int = 1) -> NoReturn:
        """End all processes at once."""
        self._library.COMM_WORLD.Abort(code)
        os._exit(code)

    def finish(
        self, request: Any, looking: float = LOOKING, number: int | None = None, source: int | None = None
    ) -> None:
        """Wait for a request, and leave the core to others if that takes long.

        Args:
            request: The request.
            looking: Seconds to look without sleep.
            number: The number of a collective in this group.
            source: The rank in the world of the process that a message comes from.

        Raises:
            CommunicatorError: If a process is missing, or has ended.
        """
        end, pause = time.perf_counter() + looking, SHORTEST
        ends, alone = self.ends.ended, float("inf")
        try:
            while not request.Test():
                self._refuse_alone()
                if ends and number is not None:
                    self.ends.refuse(self._name, number, self.ranks)
                elif source in ends:  # what it sent before may be on its way
                    alone = min(alone, time.perf_counter() + ON_ITS_WAY)
                    if time.perf_counter() > alone:
                        raise CommunicatorError(f"expected a message of rank {source}, got none: {ends[source][1]}")
                if time.perf_counter() > end:
                    time.sleep(pause)
                    pause = min(1.25 * pause, LONGEST)
        except BaseException:
            self._left.append(request)  # with its array, to which a message may still be written
            raise

    def _meet(self) -> None:
        """Wait until all processes are here."""
        self._refuse_alone()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Ibarrier(), number=number)

    def _refuse_alone(self) -> None:
        if self.ends.missing:
            raise CommunicatorError(self.ends.missing[0])

    def lose(self, told: str) -> None:
        """Let whatever waits for others raise an error, now and later: somebody never comes."""
        if not self.ends.missing:
            self.ends.missing.append(told)

    def watching(self) -> Any:
        """Another communicator of the same processes, for messages beside the collectives."""
        return self._handle.Dup()


class MpiBeside(Mpi):
    """Processes whose sums run in a thread: it sleeps while they are sent, as the run beside it needs the core."""

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Sum in place, without a copy."""
        self._refuse_alone()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Iallreduce(self._library.IN_PLACE, array), 0.0, number)

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Gather parts of any lengths."""
        self._refuse_alone()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Iallgatherv(own, [parts, list(counts)]), 0.0, number)

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Send a part of any length to each."""
        self._refuse_alone()
        mine = [counts[self.rank]] * self.size
        number = self.ends.enter(self._name)
        self.finish(self._handle.Ialltoallv([parts, list(counts)], [received, mine]), 0.0, number)


def started_by_mpi() -> bool:
    """Whether `mpirun`, or what is like it, started this process."""
    return any(name in os.environ for name in LAUNCHED)


def connect() -> Transport:
    """All processes of this program.

    Raises:
        CommunicatorError: If MPI started the program, and `mpi4py` or its library is missing.
    """
    if not started_by_mpi():
        return OneProcess()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommunicatorError(
            "init: expected mpi4py and a library of MPI, as this program was started by MPI, got "
            f'{type(error).__name__}: {error}. Install them with `pip install "kinnor[mpi]"`, or mpi4py for the '
            "MPI of your cluster"
        ) from error
    world = MPI.COMM_WORLD.Dup()
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise CommunicatorError("init: expected an MPI with MPI_THREAD_MULTIPLE, got one without")
    return Mpi(world, list(range(world.Get_size())))


def _local_rank(rank: int) -> int:
    """The number of this process among those of its machine."""
    names = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")
    found = next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), None)
    return rank if found is None else int(found)


def measure(members: Transport, size: int = 1 << 18, repeats: int = 4) -> float:
    """Bytes of an array that all processes sum in a second. All of them call it.

    Args:
        members: The processes.
        size: Number of float32 values.
        repeats: Number of sums; the fastest counts.

    Returns:
        The same number on all processes: that of the slowest.
    """
    values = np.zeros(size, np.float32)
    best = float("inf")
    for _ in range(repeats):
        members.barrier()
        start = time.perf_counter()
        members.all_reduce(values)
        best = min(best, time.perf_counter() - start)
    return min(float(text) for text in members.exchange(str(values.nbytes / max(best, 1e-9))))


def is_slow(members: Transport) -> bool:
    """Whether the link is slower than memory. All processes call it, and get the same answer."""
    return measure(members) < SLOW
