"""Errors between processes. The first argument selects the error to provoke."""

import os
import signal
import sys
import time

import numpy as np

import kinnor as nn
from kinnor.communicators import MultiProcessDataParallelCommunicator

what = sys.argv[1]
"""The fault to cause, from the command line."""
comm = MultiProcessDataParallelCommunicator(timeout=600.0 if what in ("ended", "received", "group") else 1.0)
comm.init()
x = nn.NdArray.from_numpy_array(np.ones((2, 3), np.float32))
if what == "raise" and comm.rank == 1:
    raise ValueError("the second process is broken")
if what == "kill" and comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "shape":
    x = nn.NdArray.from_numpy_array(np.ones((2, 3 + comm.rank), np.float32))
if what == "parameters":
    names = ["a", "b"][:: 1 - 2 * comm.rank]
    comm.add_context_and_parameters((nn.Context(), {name: nn.Variable((2,), need_grad=True) for name in names}))
    comm.get_all_reduce_callback()
if what == "order" and comm.rank == 1:
    comm.bcast(x, 0)
if what in ("skip", "unsaved") and comm.rank == 1:
    time.sleep(30)
if what == "ended":
    comm.bcast(x, 0)
if what == "group":
    comm.new_group(("both", [0, 1]))
    comm.all_reduce(x, group="both")
if what in ("ended", "received", "group") and comm.rank == 1:
    sys.exit(0)
if what == "received":
    comm._transports["world"].receive(np.zeros(3, np.float32), 1, 0)
if what == "group":
    comm.all_reduce(x, group="both")
if what == "unsaved":
    nn.save_checkpoint("never.checkpoint", communicator=comm)
if what == "wait":
    print("here", flush=True)
    time.sleep(60)
comm.all_reduce(x)
