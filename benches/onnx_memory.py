"""Peak memory of an ONNX model from loading on, with each runtime in a process of its own.

    python benches/onnx_memory.py onnxruntime net.onnx inputs.npz 1

Prints MiB beyond the memory of the process after its imports, over five calls.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.peers.worker import forget_peak, memory

if TYPE_CHECKING:
    from collections.abc import Mapping

CALLS = 5
"""Number of calls. Kinnor caches packed weights from the second call on, and fuses functions from the second run on."""


def peak(runtime: str, path: Path, given: Mapping[str, Any], threads: int) -> float:
    """Returns the peak in MiB from loading a model on.

    Args:
        runtime: `kinnor` or `onnxruntime`.
        path: The model.
        given: Its inputs by name.
        threads: Number of threads.
    """
    inputs = path.with_suffix(".npz")
    np.savez(inputs, **given)
    command = [sys.executable, str(Path(__file__)), runtime, str(path), str(inputs), str(threads)]
    return float(subprocess.check_output(command, text=True))


def main() -> None:
    """Prints the figure of one runtime."""
    runtime, path, inputs, threads = sys.argv[1:]
    with np.load(inputs) as file:
        given = dict(file)
    if runtime == "kinnor":
        import kinnor
        import kinnor.onnx
        from kinnor.onnx.reading import onnx_package

        onnx_package("bench")
        kinnor.set_num_threads(int(threads))
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
    before = memory("VmRSS")
    forget_peak()
    if runtime == "kinnor":
        model = kinnor.onnx.load(path)
        for _ in range(CALLS):
            model(**given)
    else:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for _ in range(CALLS):
            session.run(None, given)
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    main()
