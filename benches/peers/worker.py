"""One process of the comparison: trains or predicts one workload in one framework, on request of its parent.

    python -m benches.peers.worker FRAMEWORK FORM WORKLOAD THREADS [--predict] [--dtype bfloat16]
        [--file FILE] [--small]

A step is a training step, or a prediction. The program writes a line of JSON after the first steps, and one for each
`measure SECONDS` that it reads. It writes the last one at the end of its input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

N_FIRST = 3
"""Number of first losses or outputs that all frameworks must agree on."""

N_SAMPLES = 32
"""Least number of elements of an output that are compared, if it has as many."""

CHUNK = 0.02
"""Seconds of steps between two reads of the clock. Calls that only queue work can run ahead by this time."""

OF_ALL = {
    "OMP_NUM_THREADS": "{}",
    "MKL_NUM_THREADS": "{}",
    "KINNOR_NUM_THREADS": "{}",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}


def memory(what: str) -> float:
    """Returns MiB of this process: `VmRSS`, the current use, or `VmHWM`, the peak. NaN outside Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    # `getrusage` does not fit: its maximum includes memory of the parent from before this program was loaded.
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields[what].split()[0]) / 1024


def forget_peak() -> None:
    """Resets `VmHWM` to the current use, if the system supports it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def say(**facts: object) -> None:
    """Writes an answer."""
    print(json.dumps(facts), flush=True)


def samples(output: np.ndarray) -> list[float]:
    """Returns elements of an output, evenly spread."""
    # The odd step prevents that all elements are of one column.
    return [float(number) for number in output.reshape(-1)[:: output.size // N_SAMPLES | 1]]


def main() -> None:
    """Trains or predicts on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("form")
    parser.add_argument("workload")
    parser.add_argument("threads", type=int)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()

    for name, value in OF_ALL.items():
        os.environ[name] = value.format(arguments.threads)
    if hasattr(os, "sched_setaffinity"):
        # XLA has no other setting for this.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])

    from numpy import asarray

    from .workloads import WORKLOADS

    workload = replace(WORKLOADS[arguments.workload](arguments.small), dtype=arguments.dtype, file=arguments.file)
    started = time.perf_counter()
    if arguments.framework == "kinnor":
        # A warning can mean wrong numbers, such as a value that changed before its gradient was computed.
        warnings.simplefilter("error", UserWarning)
        from . import on_kinnor as framework
    elif arguments.framework == "torch":
        from . import on_torch as framework
    elif arguments.framework == "jax":
        from . import on_jax as framework
    elif arguments.framework == "onnxruntime":
        from . import on_onnxruntime as framework
    else:
        from . import on_tensorflow as framework
    framework.set_threads(arguments.threads)
    imported = time.perf_counter()
    forget_peak()
    baseline = memory("VmRSS")

    if arguments.predict:
        step, batches = framework.prediction(workload.for_prediction(), arguments.form)
    else:
        step, batches = framework.training(workload, arguments.form)
    read = asarray if arguments.predict else float
    source = cycle(batches)
    results: dict[str, list[float]] = {"losses": [], "outputs": []}
    for _ in range(N_FIRST):
        result = read(step(next(source)))
        if arguments.predict:
            results["outputs"] += samples(result)
        else:
            results["losses"].append(result)
    built = time.perf_counter()

    def chunk(n: int) -> tuple[float, float]:
        """Returns wall seconds and processor seconds of one of `n` steps."""
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(n):
            result = step(next(source))
        read(result)
        return (time.perf_counter() - wall) / n, (time.process_time() - cpu) / n

    n = max(1, round(CHUNK / max(chunk(1)[0], 1e-6))) if not arguments.small else 1
    n = max(1, round(CHUNK / max(chunk(n)[0], 1e-6))) if not arguments.small else 1
    say(**results, import_seconds=imported - started, build_seconds=built - imported)

    for line in sys.stdin:
        until = time.perf_counter() + float(line.split()[1])
        chunk(n)  # warms the caches after other processes have run
        times = [chunk(n)]
        while time.perf_counter() < until:
            times.append(chunk(n))
        wall, cpu = (median(figures) for figures in zip(*times, strict=True))
        say(wall=wall, cpu=cpu)
    say(baseline=baseline, peak=memory("VmHWM"))


if __name__ == "__main__":
    main()
