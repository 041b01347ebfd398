"""Checks every collective, on arrays and as functions of a graph."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators as C
import kinnor.communicators.functions as CF
import kinnor.functions as F

comm = C.MultiProcessDataParallelCommunicator()
comm.init()
comm.init()
rank, size = comm.rank, comm.size
assert comm.find_group("world") == list(range(size)) and comm.find_group("none") == []
total = size * (size + 1) / 2


def array(dtype=np.float32, shape=(2, 3)):
    """Returns an array filled with the number of this process plus one."""
    return nn.NdArray.from_numpy_array(np.full(shape, rank + 1, dtype))


for dtype in (np.float32, np.float64, np.float16, np.int32):
    for inplace in (False, True):
        arrays = [array(dtype), array(dtype, (4,))]
        comm.all_reduce(arrays, inplace=inplace)
        assert all((a.data == total).all() and a.dtype == dtype for a in arrays), (dtype, arrays)
flags = nn.NdArray.from_numpy_array(np.array([False, rank == 1, True]))
found = nn.NdArray((3,))
comm.reduce_scatter([flags] * size, found)
comm.all_reduce(flags)
assert flags.data.tolist() == found.data.tolist() == [False, True, True] and flags.dtype == found.dtype == bool
a = array()
comm.all_reduce(a, division=True)
np.testing.assert_allclose(a.data, total / size)
a = array()
comm.reduce(a, size - 1)
assert (a.data == (total if rank == size - 1 else rank + 1)).all()
arrays = [array(), array(np.int64)]
comm.bcast(arrays, 1)
assert all((a.data == 2).all() for a in arrays)
parts = [array() for _ in range(size)]
comm.all_gather(array(), parts)
assert [float(p.data[0, 0]) for p in parts] == [r + 1 for r in range(size)]
own = nn.NdArray((2, 3))
comm.reduce_scatter([nn.NdArray.from_numpy_array(np.full((2, 3), rank + 10 * n)) for n in range(size)], own)
assert (own.data == total - size + 10 * size * rank).all(), own.data
comm.barrier()

group = comm.new_group(("last", [size - 1]))
assert comm.list_groups() == {"world": list(range(size)), "last": [size - 1]} and group == "last"
if rank == size - 1:
    comm.all_reduce(array(), group="last")
else:
    with pytest.raises(C.CommunicatorError, match="expected a process of the group 'last'"):
        comm.all_reduce(array(), group="last")

# The processes may have made different numbers of consistency checks. Later collectives must still work.
comm.new_group(("first", np.array([1, 0])))
if rank < 2:
    a = nn.NdArray.from_numpy_array(np.full(2, rank, np.float32))
    for _ in range(70):
        comm.all_reduce(a, division=True, group="first")
    assert a.data.tolist() == [0.5, 0.5]
a = array()
comm.all_reduce(a)
assert (a.data == total).all()
x = nn.Variable.from_numpy_array(np.ones((2, 3 + rank), np.float32))
y = CF.all_reduce(x, comm)
with pytest.raises(
    C.CommunicatorError, match=r"rank 0: AllReduce of shape \(2, 3\)\n  rank 1: AllReduce of shape \(2, 4\)"
):
    y.forward()

# Functions: the loss of the program is the sum of the losses of all processes.
values = np.random.default_rng(rank).standard_normal((size, 4)).astype(np.float32)
weights = np.random.default_rng(9).standard_normal((size, size, 4)).astype(np.float32)
everyone = np.stack([np.random.default_rng(r).standard_normal((size, 4)).astype(np.float32) for r in range(size)])
scattered = everyone.sum(0)[rank]
for make, expected, transposed in (
    (lambda x: CF.all_reduce(x, comm), everyone.sum(0), lambda w: w.sum(0)),
    (lambda x: CF.all_reduce(x, comm, division=True), everyone.mean(0), lambda w: w.mean(0)),
    (lambda x: CF.broadcast(x, comm, src=1), everyone[1], lambda w: w.sum(0) if rank == 1 else np.zeros_like(w[0])),
    (lambda x: F.reshape(CF.all_gather(x, comm), (size * size, 4))[rank * size : (rank + 1) * size], values, None),
):
    for dynamic in (False, True):
        x = nn.Variable.from_numpy_array(values, need_grad=True)
        with nn.auto_forward(dynamic):
            y = make(x)
            loss = F.sum(y * nn.Variable.from_numpy_array(weights[rank]))
        loss.forward()
        np.testing.assert_allclose(y.d, expected, rtol=1e-5)
        x.grad.zero()
        loss.backward()
        np.testing.assert_allclose(x.g, weights[rank] if transposed is None else transposed(weights), rtol=1e-5)
        (g,) = nn.grad([loss], [x])
        g.forward()
        np.testing.assert_allclose(g.d, x.g, rtol=1e-6)
x = nn.Variable.from_numpy_array(values, need_grad=True)
y = CF.reduce_scatter(x, comm, division=True)
y.forward()
np.testing.assert_allclose(y.d, scattered / size, rtol=1e-5)
x.grad.zero()
y.backward(np.full(4, rank, np.float32))
np.testing.assert_allclose(x.g, np.tile(np.arange(size)[:, None] / size, (1, 4)), rtol=1e-6)

# Synchronous batch normalization must equal batch normalization of all examples in one process.
batch = np.random.default_rng(3).standard_normal((4 * size, 3, 2, 2)).astype(np.float32)
weight = np.random.default_rng(4).standard_normal(batch.shape).astype(np.float32)
mine = slice(4 * rank, 4 * rank + 4)


def variable_of(values, need_grad=True):
    """Returns a variable of these values, with gradients unless `need_grad` is false."""
    return nn.Variable.from_numpy_array(np.asarray(values, np.float32), need_grad=need_grad)


def normalized(x, weight, function, *more):
    """Runs the normalization `function` forward and backward. Returns its output, gradients and running statistics."""
    shape = (1, 3, 1, 1)
    rng = np.random.default_rng(5)
    beta, gamma = variable_of(rng.standard_normal(shape)), variable_of(rng.standard_normal(shape))
    running = [variable_of(np.zeros(shape), False), variable_of(np.ones(shape), False)]
    y = function(x, beta, gamma, *running, *more)
    loss = F.sum(y * nn.Variable.from_numpy_array(weight))
    loss.forward()
    x.grad.zero(), beta.grad.zero(), gamma.grad.zero()
    loss.backward()
    return y.d, x.g, beta.g, gamma.g, running[0].d, running[1].d


one = normalized(variable_of(batch), weight, F.batch_normalization)
several = normalized(variable_of(batch[mine]), weight[mine], CF.sync_batch_normalization, comm)
for n, (a, b) in enumerate(zip(one, several, strict=True)):
    if n in (2, 3):
        summed = nn.NdArray.from_numpy_array(b)
        comm.all_reduce(summed)
        b = summed.data
    np.testing.assert_allclose(a[mine] if n < 2 else a, b, rtol=2e-3, atol=2e-5)

# Dropout by example must draw the same mask as one process with the whole batch.
for shape in ((2 * size, 37), (size, 3, 64), (size, 1)):
    for draw in (
        lambda x: F.dropout(x, 0.4),
        lambda x: F.rand(shape=x.shape) + 0 * x,
        lambda x: F.randn(shape=x.shape) + 0 * x,
        lambda x: F.randint(0, 1000, shape=x.shape) + 0 * x,
    ):
        rows = shape[0] // size
        whole, part = variable_of(np.ones(shape)), variable_of(np.ones((rows, *shape[1:])))
        results = []
        for x in (whole, part):
            nn.seed(11)
            comm.share_random(x is part)
            y = [draw(x) for _ in range(3)]
            nn.forward_all(y)
            results.append([v.d.copy() for v in y])
        comm.share_random(False)
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a[rows * rank : rows * (rank + 1)], b)

# Half precision in transit: errors do not add up, since the rounding error is carried to the next sum.
for dtype, bound in (("bfloat16", 2e-2), ("float16", 2e-3)):
    w = nn.Variable((1000,), need_grad=True)
    comm.clear_context_parameters()
    comm.add_context_and_parameters((nn.Context(), {"w": w}))
    callback = comm.get_all_reduce_callback(division=True, dtype=dtype)
    sums = np.zeros((2, 1000))
    for step in range(60):
        g = np.random.default_rng([step, rank]).standard_normal(1000).astype(np.float32) * 1e-2
        y = F.sum(w * nn.Variable.from_numpy_array(g))
        y.forward()
        w.grad.zero()
        y.backward(communicator_callbacks=callback)
        if step:
            exact = np.mean([np.random.default_rng([step, r]).standard_normal(1000) * 1e-2 for r in range(size)], 0)
            assert np.abs(w.g - exact).max() < bound * 0.05
            sums += [w.g, exact]
    assert np.abs(sums[0] - sums[1]).max() < bound * 0.05, np.abs(sums[0] - sums[1]).max()
print("right")
