"""Transports: collectives on contiguous NumPy arrays, by MPI (`mpi4py`), or within one process."""

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
"""Environment variables that MPI launchers set."""

LOOKING = 2e-4
"""Seconds of busy waiting for a request, before a process sleeps between checks."""

ON_ITS_WAY = 1.0
"""Longest transfer time of a message that was sent before its sender ended, in seconds."""

SHORTEST, LONGEST = 5e-5, 2e-4
"""Seconds of the first sleep while waiting, and of the longest."""


class CommunicatorError(Error):
    """A collective that cannot be done, or whose processes do not agree on it."""


class Transport(Protocol):
    """Collectives of the processes of a group. Each process of the group calls them in the same order."""

    rank: int
    """The index of this process in the group."""
    size: int
    """The number of processes in the group."""
    local_rank: int
    """The index of this process among those on its machine."""
    ranks: list[int]
    """The world ranks of the group's processes."""

    def group(self, ranks: Sequence[int]) -> Transport | None:
        """The group of these world ranks, or None if this process is not in it. All of `self` must call it."""

    def beside(self) -> Transport:
        """The same processes for use in a thread, separate from other collectives. All of `self` must call it."""

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Sums the arrays of all processes, in place on all of them."""

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Sums the arrays of all processes, in place on `root`."""

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Copies the array of `root` to all other processes."""

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Sums `parts` over all processes, and stores part n of the sum in `own` of process n."""

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Concatenates `own` of all processes into `parts` of each one."""

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Sends part n to process n. Receives `counts[rank]` elements from each process."""

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Sends an array to one process."""

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Starts to send an array. It must not change until the returned request is done: `Test()`, `finish`."""

    def finish(self, request: Any) -> None:
        """Waits for a request."""

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Receives an array from one process."""

    def exchange(self, text: str) -> list[str]:
        """The texts of all processes, by rank."""

    def barrier(self) -> None:
        """Waits until all processes have called it."""

    def abort(self, code: int = 1) -> NoReturn:
        """Ends all processes of the program."""


class OneProcess:
    """A program of one process: its sums are its own values."""

    rank = 0
    size = 1
    local_rank = 0

    def __init__(self) -> None:
        self.ranks = [0]

    def group(self, ranks: Sequence[int]) -> OneProcess | None:
        """The group of this process, or None if rank 0 is not in it."""
        return OneProcess() if 0 in ranks else None

    def beside(self) -> OneProcess:
        """This transport."""
        return self

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Does nothing."""

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Does nothing."""

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Does nothing."""

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Copies the only part."""
        own[...] = parts

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Copies the only array."""
        parts[...] = own

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Copies the only part."""
        received[...] = parts

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Raises CommunicatorError: there is no other process."""
        raise CommunicatorError(f"send: expected another process as {to}, got a program of one process")

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Raises CommunicatorError: there is no other process."""
        self.send(array, to, tag)

    def finish(self, request: Any) -> None:
        """Returns immediately, as nothing was sent."""

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Raises CommunicatorError: there is no other process."""
        raise CommunicatorError(f"receive: expected another process as {source}, got a program of one process")

    def exchange(self, text: str) -> list[str]:
        """The text alone."""
        return [text]

    def barrier(self) -> None:
        """Returns immediately."""

    def abort(self, code: int = 1) -> NoReturn:
        """Ends the process."""
        os._exit(code)


class Ends:
    """A record of ended and missing processes, shared by all groups of a process.

    Attributes:
        missing: Error texts. If there is one, calls that wait for other processes raise it.
        entered: Number of collectives that this process has entered, by group.
        ended: For each ended process, by world rank: its `entered`, and a text for errors.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.entered: dict[str, int] = {}
        self.ended: dict[int, tuple[dict[str, int], str]] = {}

    def enter(self, group: str) -> int:
        """Counts a collective. Returns its number in the group.

        Args:
            group: The name of the group, the same on all of its processes.
        """
        number = self.entered[group] = self.entered.get(group, 0) + 1
        return number

    def refuse(self, group: str, number: int, ranks: Sequence[int]) -> None:
        """Raises an error if a process has ended before a collective.

        Args:
            group: The name of the group.
            number: The number of the collective.
            ranks: The world ranks of the group.

        Raises:
            CommunicatorError: If a process has ended before it.
        """
        told = [self.ended[r][1] for r in ranks if r in self.ended and self.ended[r][0].get(group, 0) < number]
        if told:
            raise CommunicatorError("expected all ranks in a collective, got\n  " + "\n  ".join(told))


class Mpi:
    """The transport for processes that MPI started.

    MPI keeps a core busy while it waits. So all processes wait in a barrier before each collective, asleep and with an
    error if a process is missing, and enter the collective together.

    Args:
        handle: A communicator of `mpi4py`.
        ranks: The world ranks of its processes.
        name: The name of the group, the same on all of its processes.
        ends: The record of ended and missing processes; groups share it.
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
        """The group of these world ranks, or None if this process is not in it."""
        members = self._handle.Get_group().Incl([self.ranks.index(rank) for rank in ranks])
        self._wait_for_all()
        handle = self._handle.Create(members)
        self._n_groups += 1
        name = f"{self._name}/{self._n_groups}"
        return None if handle == self._library.COMM_NULL else Mpi(handle, list(ranks), name, self.ends)

    def beside(self) -> Mpi:
        """The same processes for use in a thread. It is made once."""
        if self._beside is None:
            self._wait_for_all()
            self._beside = MpiBeside(self._handle.Dup(), self.ranks, f"{self._name}/beside", self.ends)
        return self._beside

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Sums in place, without a copy."""
        self._wait_for_all()
        self._handle.Allreduce(self._library.IN_PLACE, array)

    def reduce(self, array: NDArray[Any], root: int) -> None:
        """Sums in place on `root`. The arrays of other processes stay unchanged."""
        self._wait_for_all()
        if self.rank == root:
            self._handle.Reduce(self._library.IN_PLACE, array, root=root)
        else:
            self._handle.Reduce(array, None, root=root)

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        """Copies from `root`."""
        self._wait_for_all()
        self._handle.Bcast(array, root=root)

    def reduce_scatter(self, parts: NDArray[Any], own: NDArray[Any], counts: Sequence[int]) -> None:
        """Sums part n on process n."""
        self._wait_for_all()
        self._handle.Reduce_scatter(parts, own, list(counts))

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Gathers parts of any lengths."""
        self._wait_for_all()
        self._handle.Allgatherv(own, [parts, list(counts)])

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Sends a part of any length to each process."""
        self._wait_for_all()
        mine = [counts[self.rank]] * self.size
        self._handle.Alltoallv([parts, list(counts)], [received, mine])

    def send(self, array: NDArray[Any], to: int, tag: int) -> None:
        """Sends an array. Returns when it may be changed again."""
        self.finish(self.start_sending(array, to, tag))

    def start_sending(self, array: NDArray[Any], to: int, tag: int) -> Any:
        """Starts to send an array."""
        self._raise_if_missing()
        return self._handle.Isend(array, dest=to, tag=tag)

    def receive(self, array: NDArray[Any], source: int, tag: int) -> None:
        """Receives into an array of the same size."""
        self._raise_if_missing()
        self.finish(self._handle.Irecv(array, source=source, tag=tag), source=self.ranks[source])

    def exchange(self, text: str) -> list[str]:
        """Gathers short texts."""
        self._wait_for_all()
        return list(self._handle.allgather(text))

    def barrier(self) -> None:
        """Waits until all processes have called it."""
        self._wait_for_all()

    def abort(self, code: int = 1) -> NoReturn:
        """Ends all processes immediately."""
        self._library.COMM_WORLD.Abort(code)
        os._exit(code)

    def finish(
        self, request: Any, looking: float = LOOKING, number: int | None = None, source: int | None = None
    ) -> None:
        """Waits for a request: first busily, then with sleeps, so that the core is free for others.

        Args:
            request: The request.
            looking: Seconds of busy waiting.
            number: The number of the collective in this group, if it is one.
            source: The world rank of the sender, if it is a message to receive.

        Raises:
            CommunicatorError: If a process is missing, or has ended.
        """
        end, pause = time.perf_counter() + looking, SHORTEST
        ends, alone = self.ends.ended, float("inf")
        try:
            while not request.Test():
                self._raise_if_missing()
                if ends and number is not None:
                    self.ends.refuse(self._name, number, self.ranks)
                elif source in ends:  # its last message may still arrive
                    alone = min(alone, time.perf_counter() + ON_ITS_WAY)
                    if time.perf_counter() > alone:
                        raise CommunicatorError(f"expected a message of rank {source}, got none: {ends[source][1]}")
                if time.perf_counter() > end:
                    time.sleep(pause)
                    pause = min(1.25 * pause, LONGEST)
        except BaseException:
            self._left.append(request)  # keeps the array alive, as MPI may still write to it
            raise

    def _wait_for_all(self) -> None:
        """Waits in a barrier, asleep, until all processes have called it."""
        self._raise_if_missing()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Ibarrier(), number=number)

    def _raise_if_missing(self) -> None:
        """Raises CommunicatorError if a process is known to be missing."""
        if self.ends.missing:
            raise CommunicatorError(self.ends.missing[0])

    def lose(self, told: str) -> None:
        """Notes that a process is missing. All current and later waits raise CommunicatorError with the text."""
        if not self.ends.missing:
            self.ends.missing.append(told)

    def watching(self) -> Any:
        """A duplicate of the `mpi4py` communicator, for messages of the watchdog."""
        return self._handle.Dup()


class MpiBeside(Mpi):
    """A transport for collectives in a thread. It sleeps while they run, because the main thread needs the core."""

    def all_reduce(self, array: NDArray[Any]) -> None:
        """Sums in place, without a copy."""
        self._raise_if_missing()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Iallreduce(self._library.IN_PLACE, array), 0.0, number)

    def all_gather(self, own: NDArray[Any], parts: NDArray[Any], counts: Sequence[int]) -> None:
        """Gathers parts of any lengths."""
        self._raise_if_missing()
        number = self.ends.enter(self._name)
        self.finish(self._handle.Iallgatherv(own, [parts, list(counts)]), 0.0, number)

    def all_to_all(self, parts: NDArray[Any], received: NDArray[Any], counts: Sequence[int]) -> None:
        """Sends a part of any length to each process."""
        self._raise_if_missing()
        mine = [counts[self.rank]] * self.size
        number = self.ends.enter(self._name)
        self.finish(self._handle.Ialltoallv([parts, list(counts)], [received, mine]), 0.0, number)


def started_by_mpi() -> bool:
    """True if `mpirun` or a similar launcher started this process."""
    return any(name in os.environ for name in LAUNCHED)


def connect() -> Transport:
    """The transport between all processes of this program.

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
    """The rank of this process among the processes of its machine."""
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
        The rate of the slowest process, the same number on all of them.
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
