"""Peak memory of an ONNX model from loading on, with each runtime in a process of its own.

    python benches/onnx_memory.py onnxruntime net.onnx inputs.npz 1

Prints MiB beyond the memory of the process after its imports, over all calls in the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.peers.worker import forget_peak, memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALLS = 5
"""Calls of one shape. Kinnor caches packed weights from the second call on, and fuses functions from the second run."""


def peak(runtime: str, path: Path, calls: Sequence[Mapping[str, Any]], threads: int) -> float:
    """Returns the peak in MiB from loading a model on.

    Args:
        runtime: `kinnor` or `onnxruntime`.
        path: The model.
        calls: The inputs of each call by name.
        threads: Number of threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **{f"{at}/{name}": x for at, given in enumerate(calls) for name, x in given.items()})
        command = [sys.executable, str(Path(__file__)), runtime, str(path), str(inputs), str(threads)]
        return float(subprocess.check_output(command, text=True))


def main() -> None:
    """Prints the figure of one runtime."""
    runtime, path, inputs, threads = sys.argv[1:]
    calls: dict[str, dict[str, Any]] = {}
    with np.load(inputs) as file:
        for key, x in file.items():
            at, name = key.split("/", 1)
            calls.setdefault(at, {})[name] = x
    if runtime == "kinnor":
        import kinnor
        import kinnor.onnx
        from kinnor.onnx.read.tensors import onnx_package

        onnx_package("bench")
        kinnor.set_num_threads(int(threads))
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
        options.log_severity_level = 4
    before = memory("VmRSS")
    forget_peak()
    if runtime == "kinnor":
        model = kinnor.onnx.load(path)
        for given in calls.values():
            model(**given)
    else:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for given in calls.values():
            session.run(None, given)
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    main()
