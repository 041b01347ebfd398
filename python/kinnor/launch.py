"""Starts a program as several MPI processes: `python -m kinnor.launch -n 4 train.py --epochs 3`.

If one process fails, all end, and its traceback comes last on standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

ENDS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that are passed on to the processes as SIGTERM."""

STARTS = (b"MPI_ABORT was invoked", b"prterun ", b"mpirun ", b"Primary job ", b"An MPI communication peer process")
"""First words of Open MPI's notes on the end of a process."""


def main(arguments: list[str] | None = None) -> int:
    """Start the processes and wait for them.

    Args:
        arguments: The command line without the program's name; by default `sys.argv[1:]`.

    Returns:
        The exit status of the process that failed, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m kinnor.launch", description=(__doc__ or "").partition("\n")[0])
    cores = os.cpu_count() or 1
    parser.add_argument("-n", type=int, default=cores, metavar="N", help="number of processes (one a core)")
    parser.add_argument("--threads", type=int, help="threads of each process (its share of the cores)")
    parser.add_argument("--oversubscribe", action="store_true", help="allow more processes than there are cores")
    parser.add_argument("--hosts", help="machines as mpirun takes them, such as a:4,b:4")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is the name of a module")
    parser.add_argument("program", help="the program, a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    given = parser.parse_args(arguments)
    refusal = _problem(given)
    if refusal:
        print(f"python -m kinnor.launch: {refusal}", file=sys.stderr)
        return 2
    return _run(_command(given), _environment(given))


def _problem(given: argparse.Namespace) -> str | None:
    """The reason why the program cannot be started, or None."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if given.n < 1:
        return f"expected at least one process, got -n {given.n}"
    if given.threads is not None and given.threads < 1:
        return f"expected at least one thread of each process, got --threads {given.threads}"
    if given.n > cores and not given.oversubscribe and not given.hosts:
        return (
            f"expected at most {cores} processes, as many as this machine has cores, got -n {given.n}; "
            "--oversubscribe allows more"
        )
    if not given.module and not Path(given.program).is_file():
        return f"expected a Python file, got {given.program}, which does not exist"
    if _mpirun() is None:
        return 'expected mpirun on the PATH, got none; `pip install "kinnor[mpi]"` brings one'
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return 'expected the package mpi4py, got none; `pip install "kinnor[mpi]"` brings it'
    return None


def _mpirun() -> str | None:
    """The path of `mpirun` in this Python's environment, else on the PATH, else None."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def _command(given: argparse.Namespace) -> list[str]:
    """The command line of mpirun."""
    command = [_mpirun() or "mpirun", "-n", str(given.n)]
    if given.hosts:
        command += ["--host", given.hosts]
    if _is_open_mpi():
        command += ["--bind-to", "none"]
        if given.oversubscribe:
            command += ["--oversubscribe"]
    program = ["-m", given.program] if given.module else [given.program]
    return [*command, sys.executable, "-m", "mpi4py", *program, *given.arguments]


def _is_open_mpi() -> bool:
    """True if `mpirun` belongs to Open MPI or PRRTE."""
    said = subprocess.run([_mpirun() or "mpirun", "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in said.stdout or "PRRTE" in said.stdout or "prte" in said.stdout


def _environment(given: argparse.Namespace) -> dict[str, str]:
    """The environment of the processes: number of threads, and permission to run as root."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = given.threads or max(1, cores // given.n)
    environment = {**os.environ, "KINNOR_NUM_THREADS": str(threads)}
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in containers
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environment


class _NoteFilter:
    """Copies mpirun's standard error to `target`, without the notes that repeat a process's traceback.

    A note is a block between two lines of dashes. Notes are written last, and only if no process wrote a traceback
    or a signal ended a process.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._line = b""
        self._held: list[bytes] = []
        self._notes: list[bytes] = []
        self._has_traceback = False

    def read(self, source: int) -> None:
        """Copies from a pipe until its end.

        Args:
            source: The descriptor of the pipe.
        """
        while content := os.read(source, 1 << 16):
            *lines, self._line = (self._line + content).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
            if self._line.strip(b"\0-") and not self._held:  # an unfinished line, such as a progress bar
                self._write(self._line)
                self._line = b""
        self._write(b"".join(self._held) + self._line.strip(b"\0"))
        shown = [note for note in self._notes if not self._has_traceback or b" signal " in note]
        self._write(b"".join(shown))

    def _take(self, line: bytes) -> None:
        """Writes a line, or keeps it if it is part of a note."""
        line = line.lstrip(b"\0")  # Open MPI writes null bytes before notes
        is_rule = set(line.strip()) == {ord("-")} and len(line) > 60
        if not self._held:
            self._has_traceback |= line.startswith(b"Traceback (most recent call last)")
            if is_rule:
                self._held = [line]
            else:
                self._write(line)
        elif len(self._held) == 1 and not line.startswith(STARTS):  # a line of dashes of the program
            self._write(self._held[0])
            self._held = []
            self._take(line)
        else:
            self._held.append(line)
            if is_rule:
                self._notes.append(b"".join(self._held))
                self._held = []

    def _write(self, content: bytes) -> None:
        """Writes all bytes to the target."""
        while content:
            try:
                content = content[os.write(self._target, content) :]
            except OSError:  # the reader has closed the target; the processes continue
                return


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Runs mpirun. A signal that ends this process ends mpirun and its processes first. Returns the exit status."""
    ended: list[int] = []
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    source = process.stderr.fileno() if process.stderr is not None else -1
    reader = threading.Thread(target=_NoteFilter(2).read, args=(source,), daemon=True)
    reader.start()

    def end(number: int, _: FrameType | None) -> None:
        """Passes a signal on to mpirun."""
        ended.append(number)
        process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, end) for number in ENDS}
    try:
        status = process.wait()
        reader.join(5)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + ended[0] if ended else status


if __name__ == "__main__":
    sys.exit(main())
