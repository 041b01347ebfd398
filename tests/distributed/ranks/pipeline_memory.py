"""Trains a network that needs 800 MiB. Prints losses and peak bytes of arrays. The argument is a limit in MiB."""

import resource
import sys
from pathlib import Path

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.communicators import MultiProcessDataParallelCommunicator, Pipeline

LAYERS, WIDTH, BATCH = 52, 1024, 8
"""Number of layers, features of a layer, and examples in a batch."""

comm = MultiProcessDataParallelCommunicator()
comm.init()
if int(sys.argv[1]):  # Memory used before the network is built does not count.
    lines = Path("/proc/self/status").read_text().splitlines()
    used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
    limit = used + (int(sys.argv[1]) << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def network(x, t):
    """A deep network with its layers spread evenly over the processes."""
    h = x
    for n in range(LAYERS):
        with nn.place(n * comm.size // LAYERS):
            h = h + 0.1 * F.tanh(PF.affine(h, WIDTH, name=f"layer{n}"))
    return F.mean((h - t) ** 2)


pipeline = Pipeline(network, comm, [(BATCH, WIDTH)] * 2, 4)
solver = S.Adam(1e-4)
solver.set_parameters(nn.get_parameters())
losses = []
for step in range(2):
    rng = np.random.default_rng(step)
    values = rng.standard_normal((2, BATCH, WIDTH)).astype(np.float32)
    solver.zero_grad()
    losses.append(pipeline.forward_backward(*values))
    solver.update()
peaks = comm._members("test", "world").exchange(str(nn.memory_stats()["peak"]))
if comm.rank == 0:
    print(*losses)
    print(*peaks)
