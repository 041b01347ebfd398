"""Whom a process waits for: a thread that looks at collectives that take too long, and asks the others where they are.

It says who is missing, on every process, and lets those that wait raise an error. A process that is in a collective of
MPI itself, which nobody can leave, ends the program.
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
"""Seconds between two looks."""

GRACE = 4 * PERIOD
"""Seconds in which all processes tell whom they miss, before one of them ends the program."""

QUESTION, ANSWER, MISSING, ENDED = 1, 2, 3, 4

INSIDE = __name__.partition(".")[0] + "."


class Collective(NamedTuple):
    """What a thread of this process waits in, and since when."""

    number: int
    what: str
    since: float


class Watch:
    """Looks after the collectives of one process.

    Args:
        transport: All processes.
        timeout: Seconds after which a collective counts as one that somebody never comes to.
    """

    def __init__(self, transport: Mpi, timeout: float) -> None:
        self._transport, self._timeout = transport, timeout
        self._handle = transport.watching()
        self._inside: dict[int, Collective] = {}
        self._last = Collective(0, "none", 0.0)
        self._told: Collective | None = None
        self._missing, self._ends = "", float("inf")
        self._sent: list[Any] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="kinnor-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, what: str, where: str | None = None) -> Iterator[None]:
        """Note that this thread is in a collective, until the block ends.

        Args:
            what: The collective.
            where: The line of the program; by default the one that calls.

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
        """Tell the others that this process ends, and in which collectives it has been.

        If an error ends it, MPI ends the others.
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
        """End the program, if processes have missed each other: MPI does not end by itself then."""
        end = time.monotonic() + GRACE
        while self._sent and not all(request.Test() for request in self._sent) and time.monotonic() < end:
            time.sleep(0.001)
        if self._missing:
            sys.stdout.flush()
            time.sleep(GRACE)  # for what the others still do
            self._transport.abort()

    def _look(self) -> None:
        while not self._stopped.wait(PERIOD):
            self._answer()
            waiting = self._longest()
            if waiting is None:
                continue
            now = time.monotonic()
            if now - waiting.since > self._timeout and waiting is not self._told:
                self._ask(waiting)
            if now > self._ends + GRACE and waiting.since < self._ends:
                self._transport.abort()

    def _longest(self) -> Collective | None:
        return min(self._inside.values(), key=lambda each: each.since, default=None)

    def _answer(self) -> None:
        """Tell those who ask where this process is; hear who is missing."""
        from mpi4py import MPI

        status = MPI.Status()
        while self._handle.iprobe(tag=QUESTION):
            self._handle.recv(tag=QUESTION, status=status)
            self._send(self._state(), status.Get_source(), ANSWER)
        while self._handle.iprobe(tag=MISSING):
            self._miss(self._handle.recv(tag=MISSING))
        while self._handle.iprobe(tag=ENDED):
            told = self._handle.recv(tag=ENDED, status=status)
            self._transport.ends.ended[status.Get_source()] = told
        if time.monotonic() > self._ends:
            self._transport.lose(self._missing)

    def _send(self, text: Any, rank: int, tag: int) -> None:
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._handle.isend(text, dest=rank, tag=tag))

    def _state(self) -> str:
        waiting = self._longest()
        where = "outside of a collective; its last was" if waiting is None else "in"
        number, what, _ = waiting or self._last
        return f"{where} number {number}, {what}"

    def _miss(self, told: str) -> None:
        """Note that somebody is missing; those that wait raise an error soon."""
        if not self._missing:
            self._missing, self._ends = told, time.monotonic() + GRACE

    def _ask(self, waiting: Collective) -> None:
        """Ask all others where they are, and tell what they say."""
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
        if self._longest() is not waiting:  # it came after all
            return
        self._told = waiting
        lines = [f"rank {other} is {told.get(other, 'silent: it may have ended')}" for other in others]
        text = (
            f"rank {rank} has waited {time.monotonic() - waiting.since:.0f} s in collective number "
            f"{waiting.number}, {waiting.what}: expected all ranks in it, got\n  " + "\n  ".join(lines)
        )
        sys.stderr.write(f"kinnor: {text}\n")
        sys.stderr.flush()
        for other in others:
            self._send(text, other, MISSING)
        self._miss(text)


def caller() -> str:
    """The line of the program that called into this package."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(INSIDE) and module not in ("contextlib", "threading"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of the program"
