"""Predictions of ONNX Runtime, from the file that Kinnor writes of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .workloads import Batch, Workload

options = onnxruntime.SessionOptions()


def set_threads(n: int) -> None:
    """Sets the number of threads. They do not spin between calls, so that they do not disturb other processes."""
    options.intra_op_num_threads = n
    options.add_session_config_entry("session.force_spinning_stop", "1")


def prediction(workload: Workload, form: str) -> tuple[Callable[[Batch], np.ndarray], list[Batch]]:
    """Returns a function that computes the output of one batch, and its batches."""
    session = onnxruntime.InferenceSession(workload.file, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {"x": batch[0]})[0], workload.batches
