"""Distributed training over MPI: NNabla's communicators, pipelines and sharded solvers.

A program of one process needs no MPI: all communicators work, and sums are the process's own values.

>>> import kinnor as nn
>>> import kinnor.distributed as C
>>> comm = C.MultiProcessDataParallelCommunicator()
>>> comm.init()
>>> comm.rank, comm.size
(0, 1)
"""

from typing import Any

from .._python_functions import fused
from .communicator import (
    Communicator,
    DataParallelCommunicator,
    MultiProcessCommunicator,
    MultiProcessDataParalellCommunicator,
    MultiProcessDataParallelCommunicator,
)
from .pipeline import Pipeline
from .sharded import ShardedSolver
from .transport import CommunicatorError

__all__ = [
    "Communicator",
    "CommunicatorError",
    "DataParallelCommunicator",
    "MultiProcessCommunicator",
    "MultiProcessDataParalellCommunicator",
    "MultiProcessDataParallelCommunicator",
    "Pipeline",
    "ShardedSolver",
]


def _sync_batch_normalization(*args: Any) -> Any:
    """Calls `functions.sync_batch_normalization`, imported at the first call."""
    from .functions import sync_batch_normalization

    return sync_batch_normalization(*args)


fused.over_processes.append(_sync_batch_normalization)
