"""Saves networks with sharded or placed layers, and resumes from files of another number of processes.

saving.py FOLDER [FROM]

Trains a few steps, or loads the files `FROM.*`. Then saves, and prints the losses of the next steps exactly.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators.parametric_functions as CPF
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.communicators import MultiProcessDataParallelCommunicator, Pipeline

comm = MultiProcessDataParallelCommunicator(timeout=60)
comm.init()
folder, before = Path(sys.argv[1]), sys.argv[2:]
"""The folder to save to, and the checkpoints to load first."""
BATCH, WIDTH = 6, 8
"""Examples in a batch, and features of an example."""


def spread(x, t):
    """A network with layers sharded by columns and rows."""
    h = F.relu(CPF.affine_columns(x, 12, comm, gather=False, name="a"))
    h = CPF.affine_rows(h, WIDTH, comm, scatter=False, name="b")
    h = F.tanh(PF.batch_normalization(CPF.affine_columns(h, 8, comm, name="c")))
    return F.mean((PF.affine(h, 4, name="d") - t) ** 2)


def placed(x, t):
    """A network with layers placed on the first and last process."""
    with nn.place(0):
        h = F.relu(PF.affine(x, 12, name="a"))
    with nn.place(comm.size - 1):
        h = F.tanh(PF.batch_normalization(PF.affine(h, 8, name="b")))
        return F.mean((PF.affine(h, 4, name="c") - t) ** 2)


class Trained:
    """A network and its solver."""

    def __init__(self, name):
        """Builds the network `name`: "spread" or "placed"."""
        nn.seed(3 + len(before))  # Different initial values, to be replaced by the loaded ones.
        with nn.parameter_scope(name):
            if name == "spread":
                x, t = nn.Variable((BATCH, WIDTH)), nn.Variable((BATCH, 4))
                loss = spread(x, t)
                self.run = lambda *batch: run(loss, x, t, *batch)
            else:
                self.run = Pipeline(placed, comm, [(BATCH, WIDTH), (BATCH, 4)], 1).forward_backward
            self.parameters = nn.get_parameters(grad_only=False)
            self.solver = S.Adam(1e-2)
            self.solver.set_parameters(nn.get_parameters())
        self.saved = {"parameters": self.parameters, "solvers": {"adam": self.solver}, "communicator": comm}

    def steps(self, *numbers):
        """Runs training steps with these numbers. Returns their losses in hexadecimal."""
        losses = []
        for n in numbers:
            rng = np.random.default_rng(n)
            self.solver.zero_grad()
            shapes = (BATCH, WIDTH), (BATCH, 4)
            losses.append(self.run(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes)).hex())
            self.solver.update()
        return losses


def run(loss, x, t, values, targets):
    """Runs forward and backward. Returns the loss."""
    x.d, t.d = values, targets
    loss.forward()
    loss.backward()
    return float(loss.d)


for name in ("spread", "placed"):
    network = Trained(name)
    if not before:
        network.steps(0, 1, 2)
    for kind in ("shards", "one"):
        if before:
            assert nn.load_checkpoint(folder / f"{before[0]}.{name}.{kind}", **network.saved) == {"kind": kind}
        path = folder / f"{comm.size}{''.join(before)}.{name}.{kind}"
        nn.save_checkpoint(path, **network.saved, values={"kind": kind}, shards=kind == "shards")
    losses = network.steps(3, 4)
    if comm.rank == 0:
        print(name, *losses)

# Files that do not belong together raise on every process and change nothing.
if comm.size > 1:
    with nn.parameter_scope("other"):
        w = PF.affine(nn.Variable((2, 3 + comm.rank)), 2).parent.inputs[1]
    with pytest.raises(nn.ParameterError, match=r"got \(3, 2\) float32 on rank 0 and \(4, 2\) float32 on rank 1"):
        nn.save_checkpoint(folder / "wrong", parameters={"w": w}, communicator=comm)
    own = nn.Variable((2,))
    own.d = 7
    nn.save_checkpoint(folder / "right", parameters={"own": own}, communicator=comm)
    own.d = 8
    with pytest.raises(nn.ParameterError, match="'absent'"):
        nn.load_checkpoint(
            folder / "right", parameters={"own": own} if comm.rank == 0 else {"absent": own}, communicator=comm
        )
    assert own.d.tolist() == [8, 8] and not (folder / "wrong").exists()
print("right")
