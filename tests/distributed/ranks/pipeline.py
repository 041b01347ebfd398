"""Trains a network with layers placed on several processes, and compares it with training in one process."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.communicators import CommunicatorError, MultiProcessDataParallelCommunicator, Pipeline

comm = MultiProcessDataParallelCommunicator()
comm.init()
rank, size = comm.rank, comm.size
BATCH = 12
"""Examples in a batch."""


def network(x, t):
    """A chain with a layer on each process. The last process also reads a value of the first one."""
    first = None
    h = x
    for n in range(size):
        with nn.place(n):
            h = F.tanh(PF.affine(h, 16, name=f"layer{n}"))
            other = h * 0.5
            if n == 0:
                first = F.sin(h)
            if n == size - 1:
                h = h + other + first
                y = PF.affine(PF.batch_normalization(h), 5, name="last")
    return F.mean(F.softmax_cross_entropy(y, t))


def batch(step):
    """Returns the inputs and targets of training step number `step`."""
    rng = np.random.default_rng(step)
    return rng.standard_normal((BATCH, 10)).astype(np.float32), rng.integers(0, 5, (BATCH, 1))


for micro_batches in (1, 2, 6):
    scope = f"parts{micro_batches}"
    nn.seed(3)
    with nn.parameter_scope(f"whole{micro_batches}"):
        x, t = nn.Variable((BATCH // micro_batches, 10)), nn.Variable((BATCH // micro_batches, 1))
        loss = network(x, t)
        whole = nn.get_parameters(grad_only=False)
        trained = nn.get_parameters()
    nn.seed(3)
    with nn.parameter_scope(scope):
        pipeline = Pipeline(network, comm, [(BATCH, 10), (BATCH, 1)], micro_batches)
        own = nn.get_parameters(grad_only=False)
        own_trained = nn.get_parameters()
    assert set(own) <= set(whole) and (size == 1 or 0 < len(own) < len(whole))
    assert f"layer{rank}/affine/W" in own and (size == 1 or f"layer{(rank + 1) % size}/affine/W" not in own)
    names = [set(text.split()) for text in comm._members("test", "world").exchange(" ".join(own))]
    assert set.union(*names) == set(whole) and sum(map(len, names)) == len(whole)
    for name, v in own.items():
        np.testing.assert_array_equal(v.d, whole[name].d)
    solver, own_solver = S.Adam(1e-2), S.Adam(1e-2)
    solver.set_parameters(trained)
    own_solver.set_parameters(own_trained)
    for step in range(5):
        values, labels = batch(step)
        solver.zero_grad()
        total = 0.0
        for n in range(micro_batches):
            rows = slice(n * BATCH // micro_batches, (n + 1) * BATCH // micro_batches)
            x.d, t.d = values[rows], labels[rows]
            loss.forward(clear_no_need_grad=True)
            loss.backward(1 / micro_batches, clear_buffer=True)
            total += float(loss.d) / micro_batches
        solver.update()
        own_solver.zero_grad()
        np.testing.assert_allclose(pipeline.forward_backward(values, labels), total, rtol=2e-5)
        for name, v in own_trained.items():
            np.testing.assert_allclose(v.g, trained[name].g, rtol=1e-3, atol=1e-6)
        own_solver.update()
    assert 0 < pipeline.forward(*batch(0)) < 10

# Wrong use raises on every process and leaves no parameters behind.
shapes = [(BATCH, 10), (BATCH, 1)]


def one_place(x, t):
    """A network with layers on one process only."""
    with nn.place(0):
        return F.mean(PF.affine(x, 1, name="w") - t)


def back_again(x, t):
    """A network that returns to an earlier process."""
    with nn.place(1):
        h = PF.affine(x, 4, name="w")
    with nn.place(0):
        return F.mean(PF.affine(h, 1, name="v") - t)


def too_far(x, t):
    """A network with a layer on a process that does not exist."""
    with nn.place(size):
        return F.mean(PF.affine(x, 1, name="w") - t)


def shared(x, t):
    """A network whose processes share one parameter."""
    h = x
    for n in range(size):
        with nn.place(n):
            h = PF.affine(h, 10, name="w")
    return F.mean(h)


def different(x, t):
    """A network that differs between processes."""
    h = x
    for n in range(size):
        with nn.place(n):
            h = PF.affine(h, 4 + rank, name=f"w{n}")
    return F.mean(h)


def broken(x, t):
    """A network whose construction fails on the last process."""
    if rank == size - 1:
        raise KeyError("broken here")
    return network(x, t)


before = set(nn.get_parameters(grad_only=False))
told = {
    too_far: "one for each process",
    one_place: "no function that leads to the loss at place 1",
    back_again: "to later places",
    shared: "used at one place",
    different: "the same network on all processes",
    broken: "broken here",
}
for build, text in told.items() if size > 1 else ():
    with pytest.raises((CommunicatorError, KeyError), match=text):
        Pipeline(build, comm, shapes, 2)
with pytest.raises(CommunicatorError, match="5 micro-batches divide"):
    Pipeline(network, comm, shapes, 5)
with pytest.raises(CommunicatorError, match="to give the loss"):
    Pipeline(lambda x, t: x, comm, shapes, 2)
with pytest.raises(CommunicatorError, match="expected inputs of shapes"):
    pipeline.forward_backward(np.zeros((BATCH, 9)), np.zeros((BATCH, 1)))
assert set(nn.get_parameters(grad_only=False)) == before
with pytest.raises(nn.RangeError, match="0 or more"), nn.place(-1):
    pass
print("right")
