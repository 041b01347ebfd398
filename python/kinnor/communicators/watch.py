"""Whom a process waits for: a thread that looks at collectives that take too long, and asks the others where they are.

Nobody can leave a collective of MPI that another process never comes to. The thread says who is missing, on every
process, and ends the program.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .transport import Mpi

__all__ = ["Watch", "caller"]

PERIOD = 0.25
"""Seconds between two looks."""

QUESTION, ANSWER = 1, 2

INSIDE = __name__.partition(".")[0] + "."


class Watch:
    """Looks after the collectives of one process.

    Args:
        transport: All processes.
        timeout: Seconds after which a collective counts as one that somebody never comes to.
    """

    def __init__(self, transport: Mpi, timeout: float) -> None:
        self._transport, self._timeout = transport, timeout
        self._handle = transport.watching()
        self._number, self._what, self._since = 0, "none", 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="kinnor-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def over(self, what: str) -> Iterator[None]:
        """Note that this process is in a collective, until the block ends."""
        self._number += 1
        self._what, self._since = f"{what} ({caller()})", time.monotonic()
        try:
            yield
        finally:
            self._since = 0.0

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(PERIOD):
            self._answer()
            since = self._since
            if since and time.monotonic() - since > self._timeout:
                self._give_up(since)

    def _answer(self) -> None:
        """Tell those who ask where this process is."""
        while self._handle.iprobe(tag=QUESTION):
            from mpi4py import MPI

            status = MPI.Status()
            self._handle.recv(tag=QUESTION, status=status)
            self._handle.isend(self._state(), dest=status.Get_source(), tag=ANSWER)

    def _state(self) -> str:
        where = "in" if self._since else "outside of a collective; its last was"
        return f"{where} number {self._number}, {self._what}"

    def _give_up(self, since: float) -> None:
        """Ask all others, tell what they say, end the program."""
        others = [rank for rank in range(self._transport.size) if rank != self._transport.rank]
        for rank in others:
            self._handle.isend(None, dest=rank, tag=QUESTION)
        told: dict[int, str] = {}
        end = time.monotonic() + 8 * PERIOD
        while len(told) < len(others) and time.monotonic() < end and self._since == since:
            self._answer()
            for rank in others:
                if rank not in told and self._handle.iprobe(source=rank, tag=ANSWER):
                    told[rank] = self._handle.recv(source=rank, tag=ANSWER)
            time.sleep(0.01)
        if self._since != since:  # it came after all
            return
        lines = [f"rank {rank} is {told.get(rank, 'silent: it does not answer')}" for rank in others]
        sys.stderr.write(
            f"kinnor: rank {self._transport.rank} has waited {time.monotonic() - since:.0f} s in collective number "
            f"{self._number}, {self._what}: expected all ranks in it, got\n  " + "\n  ".join(lines) + "\n"
        )
        sys.stderr.flush()
        time.sleep(4 * PERIOD)  # until the others have told theirs
        self._transport.abort()


def caller() -> str:
    """The line of the program that called into this package."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(INSIDE) and module not in ("contextlib", "threading"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of the program"
