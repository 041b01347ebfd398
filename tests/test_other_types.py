"""Arrays of another type than the one that functions compute in: the next run sees every write, however it was made."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff
from kinnor.utils.dlpack import from_dlpack

rng = np.random.default_rng(5)
X, W = rng.standard_normal((34, 64)), rng.standard_normal((64, 96))

TYPES = {
    "float64": (np.float64, "float"),
    "float16": (np.float16, "float"),
    "bfloat16": (ml_dtypes.bfloat16, "float"),
    "int32": (np.int32, "float"),
    "float32": (np.float32, "float"),
    "float32 in double": (np.float32, "double"),
    "float32 in half": (np.float32, "half"),
    "float32 in bfloat16": (np.float32, "bfloat16"),
}


class Net:
    def __init__(self, x, w):
        self.x = nn.Variable.from_numpy_array(x, need_grad=True)
        self.w = nn.Variable.from_numpy_array(w, need_grad=True)
        self.loss = self.build()

    def build(self):
        return F.sum(F.sin(F.affine(self.x, self.w) * 0.1)) + F.sum(self.x * self.x)

    def numbers(self, *arrays):
        return [np.array(a.get_data("r")) for a in arrays]


def forward(net):
    net.loss.forward()
    return net.numbers(net.loss.data)


def clearing(net):
    net.loss.forward(clear_no_need_grad=True)
    net.x.grad.zero()
    net.w.grad.zero()
    net.loss.backward(clear_buffer=True)
    return net.numbers(net.loss.data, net.x.grad, net.w.grad)


def predicting(net):
    with nn.no_grad():
        y = net.build()
        y.forward()
    return net.numbers(y.data)


def at_once(net):
    with nn.auto_forward():
        y = net.build()
    return net.numbers(y.data)


def differentiating(net):
    net.loss.forward()
    gradients = autodiff.grad(net.loss, [net.x, net.w])
    return net.numbers(net.loss.data, *(g.data for g in gradients))


def without_graph(net):
    with nn.auto_forward(), nn.no_grad():
        y = net.build()
    return net.numbers(y.data)


RUNS = [forward, clearing, predicting, at_once, differentiating, without_graph]


def dropped(view):
    """Writes through a view that was there during a run, and is not any more in the next."""

    def write(array, new, run):
        seen = view(array)
        run()
        seen[...] = new

    return write


def parts(array, new, run):
    half = new.shape[0] // 2
    views = [array.narrow(0, 0, half).data, array.narrow(0, half, new.shape[0] - half).data]
    run()
    views[0][...], views[1][...] = new[:half], new[half:]


def address(array, new, run):
    place = array.data_ptr(new.dtype)
    run()
    ctypes.memmove(place, np.ascontiguousarray(new).ctypes.data, new.nbytes)


def borrowed(array, new, run):
    own = np.zeros_like(new)
    from_dlpack(own, array)
    run()
    own[...] = new


def between(array, new, run):
    """No run while the view is there."""
    array.data[...] = new
    run()
    array.data[...] = new[::-1]
    array.data[...] = new


def in_steps(array, new, run):
    view = array.data
    for i in range(0, new.shape[0], 30):
        run()
        view[i : i + 30] = new[i : i + 30]


def assigned(array, new, run):
    array.data = new
    run()


def bytewise(array):
    return memoryview(array.data.view(np.uint8)).cast("B")


def by_bytes(array, new, run):
    view = bytewise(array)
    run()
    view[:] = np.ascontiguousarray(new).tobytes()


# What is known by its address is never trusted again, so that it comes last.
WRITES = {
    "data": dropped(lambda array: array.data),
    "asarray": dropped(np.asarray),
    "get_data": dropped(lambda array: array.get_data("rw")),
    "cast": dropped(lambda array: array.cast(array.dtype)),
    "by_bytes": by_bytes,
    "between": between,
    "in_steps": in_steps,
    "assigned": assigned,
    "borrowed": borrowed,
    "parts": parts,
    "address": address,
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("dtype", "compute"), TYPES.values(), ids=TYPES)
def test_the_next_run_sees_every_write(dtype, compute, run):
    def values(n):
        x, w = X + n, W - n
        return [(a * 8).astype(dtype) if dtype == np.int32 else a.astype(dtype) for a in (x, w)]

    with nn.context_scope(nn.Context([f"cpu:{compute}"])):
        net = Net(*values(0))
        for n, (name, write) in enumerate(WRITES.items()):
            if write is borrowed and dtype is ml_dtypes.bfloat16:
                continue  # NumPy does not lend it
            for leaf, new in zip((net.x, net.w), values(n + 1), strict=True):
                run(net)
                write(leaf.data, new, lambda: (run(net), run(net)))
            expected = run(Net(*values(n + 1)))
            for found in (run(net), run(net)):
                assert all(map(np.array_equal, found, expected)), name


def test_a_numeric_gradient_leaves_no_trace():
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0, 3.0]), need_grad=True)
    y = F.sum(x * x)
    y.forward()

    def numeric(step=1e-2):
        d = x.d
        found = np.zeros(3)
        for i in range(3):
            old, ends = d[i], []
            for sign in (1, -1):
                d[i] = old + sign * step
                y.forward()
                ends.append(y.item())
            d[i] = old
            found[i] = (ends[0] - ends[1]) / (2 * step)
        return found

    assert np.allclose(numeric(), [2, 4, 6], atol=1e-2)
    y.forward()
    assert y.item() == 14
    x.grad.zero()
    y.backward()
    assert x.g.tolist() == [2, 4, 6]


def test_indices_that_were_changed_through_a_view_are_read_anew():
    w = nn.Variable.from_numpy_array(np.arange(8, dtype=np.float32).reshape(4, 2))
    i = nn.Variable.from_numpy_array(np.array([0, 1], np.int32))
    y = F.embed(i, w)
    view = i.d
    y.forward()
    view[:] = [3, 2]
    del view
    y.forward()
    assert y.d.tolist() == [[6, 7], [4, 5]]
