"""The watchdog: a thread that detects collectives that take too long, and asks all processes for their state.

Every process prints which ranks are missing, and waiting calls raise an error. A process inside of an MPI collective
cannot be interrupted; it ends the program.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .transport import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .transport import Mpi

__all__ = ["Watch", "caller"]

PERIOD = 0.25
"""Seconds between two checks."""

GRACE = 4 * PERIOD
"""Seconds for all processes to report missing ranks, before one of them ends the program."""

QUESTION, ANSWER, MISSING, ENDED = 1, 2, 3, 4
"""Tags of messages between watches: a question, its answer, a report of missing ranks, the end of a program."""

INSIDE = __name__.partition(".")[0] + "."
"""Start of the names of Kinnor's modules. `caller` skips frames of these modules."""


class Collective(NamedTuple):
    """A collective in which a thread of this process waits, and its start time."""

    number: int
    """The number of this process's collectives up to and including this one."""
    what: str
    """The description of the collective and the line of the program that called it."""
    since: float
    """The time of the start, in seconds of `time.monotonic`."""


class Watch:
    """Watches the collectives of one process.

    Args:
        transport: All processes.
        timeout: Seconds after which a process counts as missing in a collective.
    """

    def __init__(self, transport: Mpi, timeout: float) -> None:
        self._transport, self._timeout = transport, timeout
        self._handle = transport.watching()
        self._inside: dict[int, Collective] = {}
        self._last = Collective(0, "none", 0.0)
        self._reported: Collective | None = None
        self._missing, self._ends = "", float("inf")
        self._sent: list[Any] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch_loop, name="kinnor-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, what: str, where: str | None = None) -> Iterator[None]:
        """Registers the `with` block as a collective of this thread.

        Args:
            what: Description of the collective.
            where: The line of the program; by default the calling line.

        Raises:
            CommunicatorError: If MPI refuses the collective.
        """
        thread = threading.get_ident()
        outer = self._inside.get(thread)
        self._last = Collective(self._last.number + 1, f"{what} ({where or caller()})", time.monotonic())
        self._inside[thread] = self._last
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith("mpi4py"):
                raise CommunicatorError(f"{what}: {error}") from error
            raise
        finally:
            if outer is None:
                del self._inside[thread]
            else:
                self._inside[thread] = outer

    def say_end(self) -> None:
        """Reports the end of this process and its last collective to the others.

        Nothing is sent if an error ends the process: then MPI ends the others.
        """
        self._stopped.set()
        self._thread.join()
        if self._missing or getattr(sys, "last_type", None) is not None:
            return
        last = f"number {self._last.number}, {self._last.what}" if self._last.number else "none"
        text = f"rank {self._transport.rank} has ended; its last collective was {last}"
        for other in range(self._transport.size):
            if other != self._transport.rank:
                self._send((dict(self._transport.ends.entered), text), other, ENDED)

    def stop(self) -> None:
        """Aborts the program if a process is missing, because MPI would not end by itself."""
        end = time.monotonic() + GRACE
        while self._sent and not all(request.Test() for request in self._sent) and time.monotonic() < end:
            time.sleep(0.001)
        if self._missing:
            sys.stdout.flush()
            time.sleep(GRACE)  # the others may still write messages
            self._transport.abort()

    def _watch_loop(self) -> None:
        """The loop of the thread: answers questions, and asks after the timeout of a collective."""
        while not self._stopped.wait(PERIOD):
            self._answer()
            waiting = self._longest()
            if waiting is None:
                continue
            now = time.monotonic()
            if now - waiting.since > self._timeout and waiting is not self._reported:
                self._ask(waiting)
            if now > self._ends + GRACE and waiting.since < self._ends:
                self._transport.abort()

    def _longest(self) -> Collective | None:
        """The collective of this process that has waited longest."""
        return min(self._inside.values(), key=lambda each: each.since, default=None)

    def _answer(self) -> None:
        """Handles messages: answers questions about this process's state, and notes missing and ended processes."""
        from mpi4py import MPI

        status = MPI.Status()
        while self._handle.iprobe(tag=QUESTION):
            self._handle.recv(tag=QUESTION, status=status)
            self._send(self._state(), status.Get_source(), ANSWER)
        while self._handle.iprobe(tag=MISSING):
            self._note_missing(self._handle.recv(tag=MISSING))
        while self._handle.iprobe(tag=ENDED):
            told = self._handle.recv(tag=ENDED, status=status)
            self._transport.ends.ended[status.Get_source()] = told
        if time.monotonic() > self._ends:
            self._transport.lose(self._missing)

    def _send(self, text: Any, rank: int, tag: int) -> None:
        """Starts to send a message to another watchdog."""
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._handle.isend(text, dest=rank, tag=tag))

    def _state(self) -> str:
        """A text on the current or the last collective of this process."""
        waiting = self._longest()
        where = "outside of a collective; its last was" if waiting is None else "in"
        number, what, _ = waiting or self._last
        return f"{where} number {number}, {what}"

    def _note_missing(self, told: str) -> None:
        """Notes that a process is missing. Waiting calls raise an error after `GRACE` seconds."""
        if not self._missing:
            self._missing, self._ends = told, time.monotonic() + GRACE

    def _ask(self, waiting: Collective) -> None:
        """Asks all other processes for their state, and reports the answers to standard error and to the others."""
        rank = self._transport.rank
        others = [other for other in range(self._transport.size) if other != rank]
        for other in others:
            self._send("", other, QUESTION)
        told: dict[int, str] = {}
        end = time.monotonic() + 2 * GRACE
        while len(told) < len(others) and time.monotonic() < end and self._longest() is waiting:
            self._answer()
            for other in others:
                if other not in told and self._handle.iprobe(source=other, tag=ANSWER):
                    told[other] = self._handle.recv(source=other, tag=ANSWER)
            time.sleep(0.01)
        if self._longest() is not waiting:  # the collective has completed
            return
        self._reported = waiting
        lines = [f"rank {other} is {told.get(other, 'silent: it may have ended')}" for other in others]
        text = (
            f"rank {rank} has waited {time.monotonic() - waiting.since:.0f} s in collective number "
            f"{waiting.number}, {waiting.what}: expected all ranks in it, got\n  " + "\n  ".join(lines)
        )
        sys.stderr.write(f"kinnor: {text}\n")
        sys.stderr.flush()
        for other in others:
            self._send(text, other, MISSING)
        self._note_missing(text)


def caller() -> str:
    """File and line of the program's call into this package."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(INSIDE) and module not in ("contextlib", "threading"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of the program"
