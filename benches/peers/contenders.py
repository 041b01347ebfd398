"""The contenders of the comparison, and the processes that run them. Does not format results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .workloads import Workload

ROOT = Path(__file__).parents[2]
PEERS = ("torch", "jax", "tensorflow", "onnxruntime")
TRAINING, PREDICTION = "training", "prediction"
DTYPES = ("float32", "bfloat16")
PLAIN, NAMED = "static", "static, named"
DYNAMIC, DYNAMIC_NAMED = "dynamic", "dynamic, named"
RUN_AT_ONCE = (DYNAMIC, DYNAMIC_NAMED, "eager", "channels last")
"""Forms that compute while the program builds the network. Dynamic mode is compared with these."""

LIMIT = 300.0
"""Timeout in seconds for an answer of a process."""


class Failed(Exception):
    """Raised if a process ended or did not answer in time."""


def able(name: str, task: str, dtype: str) -> bool:
    """True if a peer can take part. In bfloat16, only PyTorch converts a float32 program by itself."""
    return name == "torch" if dtype == "bfloat16" else task == PREDICTION or name != "onnxruntime"


def forms(framework: str, workload: Workload, with_compile: bool) -> list[str]:
    """Returns the forms in which a framework runs a workload."""
    if framework == "kinnor":
        return [PLAIN, NAMED, DYNAMIC, DYNAMIC_NAMED]
    if framework == "jax":
        return ["jit"]
    if framework == "onnxruntime":
        return ["session"]
    if framework == "tensorflow":
        return ["function", *["eager"] * workload.is_small_work]
    has_images = workload.batches[0][0].ndim == 4
    return ["eager", *["channels last"] * has_images, *["compile"] * with_compile]


def installed(python: Path) -> list[str]:
    """Returns the peers that `python` can import. Empty if the interpreter does not exist."""
    if not python.exists():
        return []
    program = f"import importlib.util as u; print(*(n for n in {PEERS} if u.find_spec(n)))"
    return subprocess.check_output([python, "-c", program], text=True).split()


@dataclass
class Row:
    """Measurements of one form of one workload.

    Attributes:
        losses: Losses of the first steps.
        outputs: In prediction, elements of the first outputs.
        wall: Milliseconds of a step or prediction, one figure for each round.
        cpu: Milliseconds of all processors together, for each round.
        baseline: MiB in use after importing the framework.
        peak: The peak in MiB after that.
        failure: The reason, if there are no figures.
        dtype: "float32", or "bfloat16" for mixed precision.
        task: "training" or "prediction".
    """

    workload: str
    threads: int
    framework: str
    form: str
    losses: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    baseline: float = float("nan")
    peak: float = float("nan")
    build_seconds: float = float("nan")
    failure: str = ""
    dtype: str = "float32"
    task: str = TRAINING
    outputs: list[float] = field(default_factory=list)

    @property
    def who(self) -> str:
        """Framework and form."""
        return f"{self.framework} {self.form}"

    def facts(self) -> dict[str, Any]:
        """The fields as a dictionary, for a file."""
        return asdict(self)


class Contender:
    """A process that trains or predicts, and the row for its results.

    Args:
        row: Workload, framework, form and number of threads. Figures are added to it.
        python: Interpreter that has the framework.
        is_small: True for the small form of the workload.
        file: ONNX file of the network, which ONNX Runtime needs.
    """

    def __init__(
        self, row: Row, python: Path | str = sys.executable, is_small: bool = False, file: Path | None = None
    ) -> None:
        self.row = row
        what = [row.framework, row.form, row.workload, str(row.threads)]
        arguments = [*what, "--dtype", row.dtype, *["--small"] * is_small, *["--predict"] * (row.task == PREDICTION)]
        arguments += ["--file", str(file)] if file else []
        path = [str(ROOT), *([] if row.framework != "kinnor" else os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self.errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(python), "-m", "benches.peers.worker", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """Returns the next line of JSON. Other output of the framework is skipped."""
        assert self.process.stdout is not None
        timer = Timer(LIMIT, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            timer.cancel()
        self.process.wait()
        self.errors.seek(0)
        raise Failed((self.errors.read().strip().splitlines() or [f"gave up after {LIMIT:g} s"])[-1])

    def start(self) -> None:
        """Waits until the first steps are done."""
        facts = self.answer()
        self.row.losses, self.row.outputs = facts["losses"], facts["outputs"]
        self.row.build_seconds = facts["build_seconds"]

    def measure(self, seconds: float) -> None:
        """Runs steps for some seconds, while the other processes wait."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `answer` raises the reason
            self.process.stdin.write(f"measure {seconds}\n")
            self.process.stdin.flush()
        facts = self.answer()
        self.row.wall.append(1e3 * facts["wall"])
        self.row.cpu.append(1e3 * facts["cpu"])

    def finish(self) -> None:
        """Reads the memory figures, and ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if not self.row.failure:
            facts = self.answer()
            self.row.baseline, self.row.peak = facts["baseline"], facts["peak"]
        self.close()

    def close(self) -> None:
        """Ends the process in any state."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None and not stream.closed:
                stream.close()
