"""A convolution keeps what it made of a weight as long as that stays the same; nobody can tell from the numbers."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

rng = np.random.default_rng(3)
X = rng.standard_normal((2, 48, 8, 8)).astype(np.float32)
W = rng.standard_normal((64, 48, 3, 3)).astype(np.float32)


@pytest.fixture(params=["convolution", "deconvolution"], autouse=True)
def convolve(request):
    """Both take Winograd's way, with few tiles."""
    if request.param == "convolution":
        return lambda x, w: F.convolution(x, w, pad=(1, 1))
    return lambda x, w: F.deconvolution(x, F.transpose(w, (1, 0, 2, 3)), pad=(1, 1))


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request):
    before = nn.get_num_threads()
    nn.set_num_threads(request.param)
    yield
    nn.set_num_threads(before)


class Net:
    """Output and gradient of the input for a weight that somebody may change."""

    def __init__(self, convolve, w):
        self.convolve, self.w = convolve, w
        self.x = nn.Variable.from_numpy_array(X, need_grad=True)
        self.y = convolve(self.x, w)

    def run(self):
        self.x.g = 0
        self.y.forward()
        self.y.backward(1.0)
        return self.y.d.copy(), self.x.g.copy()

    def check(self):
        """What it computes now, several times, is what a new graph computes from a copy of the weight."""
        fresh = Net(self.convolve, nn.Variable.from_numpy_array(np.array(self.w.data.data)))
        expected = fresh.run()
        for _ in range(3):
            for found, wanted in zip(self.run(), expected, strict=True):
                assert np.array_equal(found, wanted)


@pytest.fixture
def net(convolve):
    net = Net(convolve, nn.Variable.from_numpy_array(W.copy(), need_grad=True))
    net.check()
    return net


def test_a_weight_that_is_assigned_to(net):
    net.w.d = W + 1
    net.check()
    net.w.d[3] = 0.5
    net.check()
    net.w.data.fill(0.25)
    net.check()


def test_a_weight_that_is_written_through_a_view(net):
    view = net.w.d
    net.check()
    for i in range(3):
        view[i] = i
        net.check()
    view[5] = 5
    del view
    net.check()
    # A view that comes and goes between two runs leaves no trace but its writes.
    net.w.d[7] = 7
    net.check()
    part = net.w.d[8:9]
    part[...] = 8
    net.check()


def test_a_weight_that_others_write_by_address(net):
    import ctypes

    address = net.w.data.data_ptr(np.float32)
    values = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (W.size,))
    net.check()
    values[:100] = 3
    net.check()


def test_a_weight_that_a_solver_updates(net):
    solver = S.Sgd(lr=0.1)
    solver.set_parameters({"w": net.w})
    for _ in range(3):
        net.run()
        net.w.g = 1.0
        solver.update()
        net.check()


def test_a_weight_that_two_functions_share(net, convolve):
    other = Net(convolve, net.w)
    for i in range(2):
        other.check()
        net.w.d = W * (i + 2)
        net.check()
        other.check()
    net.w.data = nn.NdArray.from_numpy_array(W[::-1].copy())
    net.check()


def test_part_of_an_array(convolve):
    both = nn.NdArray.from_numpy_array(np.stack([W, W]))
    net = Net(convolve, nn.Variable.from_numpy_array(W))
    net.w.data = both.narrow(0, 1, 1).view(W.shape)
    net.check()
    both.data[1, 2] = 4
    net.check()
    both.fill(0.5)
    net.check()


def test_what_is_kept_is_given_back(convolve):
    w = rng.standard_normal((512, 384, 3, 3)).astype(np.float32)
    x = nn.Variable.from_numpy_array(rng.standard_normal((1, 384, 8, 8)).astype(np.float32))
    y = F.convolution(x, nn.Variable.from_numpy_array(w), pad=(1, 1))

    def cached():
        nn.clear_memory_cache()
        return nn.memory_stats()["cached"]

    y.forward()
    before = cached()
    y.forward()
    assert nn.memory_stats()["cached"] - before > 3 * w.nbytes
    expected = y.d.copy()
    assert cached() - before < w.nbytes
    y.forward()
    assert np.array_equal(y.d, expected)
    y.forward()
    del y
    assert nn.memory_stats()["live"] + cached() < 8 * w.nbytes + before
