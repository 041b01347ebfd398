"""Trains, saves after each step, and resumes after a restart. Prints the loss of each step exactly."""

import sys
from pathlib import Path

import numpy as np
from network import Network

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.communicators import MultiProcessDataParallelCommunicator, ShardedSolver
from kinnor.utils.data_iterator import data_iterator_simple

path, steps, shards, dropout = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "shards", sys.argv[4] == "dropout"
"""Arguments: the checkpoint, the last step, if the solver is sharded, and if the network has dropout."""
comm = MultiProcessDataParallelCommunicator()
comm.init()
comm.share_random()
network = Network(12 // comm.size, "net")
rng = np.random.default_rng(0)
examples, labels = rng.standard_normal((50, 10)).astype(np.float32), rng.integers(0, 5, (50, 1))
batches = data_iterator_simple(
    lambda i: (examples[i], labels[i]), 50, network.batch, shuffle=True, rng=np.random.RandomState(2)
).shard(comm.rank, comm.size)
solver = ShardedSolver(S.Adam(), comm)
solver.set_parameters(network.parameters)
noise = F.mean(F.dropout(network.loss.parent.inputs[0], 0.5)) * 0.1 if dropout else None
loss = network.loss if noise is None else network.loss + noise
everything = {"parameters": network.parameters, "solvers": {"adam": solver}, "iterators": {"digits": batches}}
first = 0
if path.exists():
    first = nn.load_checkpoint(path, **everything, communicator=comm)["step"]
for step in range(first, steps):
    network.x.d, network.t.d = batches.next()
    loss.forward()
    solver.zero_grad()
    loss.backward(communicator_callbacks=solver.callback)
    solver.update()
    mean = nn.NdArray.from_numpy_array(loss.d)
    comm.all_reduce(mean, division=True)
    if comm.rank == 0:
        with path.with_name("losses").open("a") as file:
            file.write(f"{step} {float(mean.data).hex()}\n")
    nn.save_checkpoint(path, **everything, values={"step": step + 1}, communicator=comm, shards=shards)
batches.close()
