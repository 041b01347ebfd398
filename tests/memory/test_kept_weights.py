"""Data derived from a weight (packed, transformed) is cached until the weight changes. Results never show the cache."""

import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

rng = np.random.default_rng(3)
X = rng.standard_normal((2, 48, 8, 8)).astype(np.float32)
"""A batch of images, the input of each layer."""
W = rng.standard_normal((64, 48, 3, 3)).astype(np.float32)
"""The weight of a convolution."""


@pytest.fixture(params=["convolution", "deconvolution", "affine"])
def layer(request):
    """Returns a layer that caches its weight: a convolution or deconvolution by Winograd, or an affine map."""
    if request.param == "convolution":
        return lambda x, w: F.convolution(x, w, pad=(1, 1))
    if request.param == "deconvolution":
        return lambda x, w: F.deconvolution(F.concatenate(x, x[:, :16], axis=1), w, pad=(1, 1))
    return lambda x, w: F.affine(x, w, base_axis=2)


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request):
    """Runs the test with some numbers of threads."""
    before = nn.get_num_threads()
    nn.set_num_threads(request.param)
    yield
    nn.set_num_threads(before)


class Net:
    """A layer whose weight may change between runs."""

    def __init__(self, layer, w):
        """Builds `layer(x, w)` for the input `X`."""
        self.layer, self.w = layer, w
        self.x = nn.Variable.from_numpy_array(X, need_grad=True)
        self.y = layer(self.x, w)

    def run(self):
        """Runs forward and backward. Returns the output and the gradient of the input."""
        self.x.g = 0
        self.y.forward()
        self.y.backward(1.0)
        return self.y.d.copy(), self.x.g.copy()

    def check(self):
        """Asserts that several runs give the result of a new graph with a copy of the weight."""
        fresh = Net(self.layer, nn.Variable.from_numpy_array(np.array(self.w.data.data)))
        expected = fresh.run()
        for _ in range(3):
            for found, wanted in zip(self.run(), expected, strict=True):
                assert np.array_equal(found, wanted)


@pytest.fixture
def net(layer):
    """Returns a layer that has cached its weight."""
    net = Net(layer, nn.Variable.from_numpy_array(W.copy(), need_grad=True))
    net.check()
    return net


def test_a_weight_that_is_assigned_to(net):
    """A cached weight is packed again after an assignment to it."""
    net.w.d = W + 1
    net.check()
    net.w.d[3] = 0.5
    net.check()
    net.w.data.fill(0.25)
    net.check()


def test_a_weight_that_is_written_through_a_view(net):
    """Results follow each write to the weight through a view, while the view is held and after it."""
    view = net.w.d
    net.check()
    for i in range(3):
        view[i] = i
        net.check()
    view[5] = 5
    del view
    net.check()
    # A view that exists only between two runs affects nothing but its writes.
    net.w.d[7] = 7
    net.check()
    part = net.w.d[8:9]
    part[...] = 8
    net.check()


def test_a_weight_that_others_write_by_address(net):
    """A weight whose address was given away is never taken from the cache."""
    import ctypes

    address = net.w.data.data_ptr(np.float32)
    values = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (W.size,))
    net.check()
    values[:100] = 3
    net.check()


def test_a_weight_that_a_solver_updates(net):
    """Results follow each update of the weight by a solver."""
    solver = S.Sgd(lr=0.1)
    solver.set_parameters({"w": net.w})
    for _ in range(3):
        net.run()
        net.w.g = 1.0
        solver.update()
        net.check()


def test_a_weight_that_two_functions_share(net, layer):
    """Results of both functions follow each change of a weight that they share."""
    other = Net(layer, net.w)
    for i in range(2):
        other.check()
        net.w.d = W * (i + 2)
        net.check()
        other.check()
    net.w.data = nn.NdArray.from_numpy_array(W[::-1].copy())
    net.check()


def test_part_of_an_array(layer):
    """A weight that is a part of an array is packed again after a write to the array."""
    both = nn.NdArray.from_numpy_array(np.stack([W, W]))
    net = Net(layer, nn.Variable.from_numpy_array(W))
    net.w.data = both.narrow(0, 1, 1).view(W.shape)
    net.check()
    both.data[1, 2] = 4
    net.check()
    both.fill(0.5)
    net.check()


def test_weights_that_change_by_other_means(net, tmp_path):
    """A cached weight is packed again after loading, in-place functions and operators."""
    nn.save_parameters(str(tmp_path / "w.h5"), {"w": net.w})
    net.w.data.data[...] = 2
    net.check()
    parameters = {"w": net.w}
    nn.clear_parameters()
    nn.parameter.set_parameter("w", net.w)
    nn.load_parameters(str(tmp_path / "w.h5"))
    net.check()
    assert np.array_equal(parameters["w"].d, W)
    with nn.no_grad(), nn.auto_forward():
        F.assign(net.w, nn.Variable.from_numpy_array(W * 3))
    net.check()
    net.w.data += 1
    net.check()
    net.w.data.cast(np.float16)
    net.check()
    net.w.data.cast(np.float64)
    net.check()
    nn.clear_parameters()


def test_cached_weights_are_freed_on_request_and_with_their_graph():
    w = rng.standard_normal((512, 384, 3, 3)).astype(np.float32)
    x = nn.Variable.from_numpy_array(rng.standard_normal((1, 384, 8, 8)).astype(np.float32))
    y = F.convolution(x, nn.Variable.from_numpy_array(w), pad=(1, 1))

    def cached():
        """Clears the memory cache. Returns the bytes that it could not free."""
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


def cached():
    """Clears the memory cache. Returns the bytes that it could not free."""
    nn.clear_memory_cache()
    return nn.memory_stats()["cached"]


def test_a_packed_weight_is_freed_with_its_weight():
    values = rng.standard_normal((512, 1024)).astype(np.float32)
    x = nn.Variable.from_numpy_array(rng.standard_normal((32, 512)).astype(np.float32))
    net = [F.affine(x, nn.Variable.from_numpy_array(values))]

    def kept(runs):
        """Returns the bytes that some runs add to the cache. Scratch memory is small if nothing is packed."""
        before = cached()
        for _ in range(runs):
            net[0].forward()
        return nn.memory_stats()["cached"] - before

    kept(1)
    expected = net[0].d.copy()
    assert values.nbytes <= kept(1) < 1.2 * values.nbytes
    assert kept(2) < 1.2 * values.nbytes
    assert np.array_equal(net[0].d, expected)
    before = nn.memory_stats()
    net.clear()
    after = cached() + nn.memory_stats()["live"]
    assert after <= before["cached"] + before["live"] - 2 * values.nbytes  # the weight and its cached form


def test_training_with_one_product_for_each_weight_caches_nothing():
    w = nn.Variable.from_numpy_array(rng.standard_normal((1024, 2048)).astype(np.float32), need_grad=True)
    x = nn.Variable.from_numpy_array(rng.standard_normal((32, 1024)).astype(np.float32), need_grad=True)
    y = F.affine(x, w)
    solver = S.Sgd(lr=1e-3)
    solver.set_parameters({"w": w})

    def step():
        """Runs a training step."""
        y.forward()
        w.grad.zero()
        y.backward(1.0)
        solver.update()

    step()
    before = cached()
    for _ in range(4):
        step()
    # Allow for scratch memory of a second thread. A cached weight takes more.
    once = nn.memory_stats()["cached"] - before
    assert once < 4 * w.size
    # Data cached for inference is freed by the second update.
    for _ in range(3):
        y.forward()
    assert nn.memory_stats()["cached"] - before >= once + 4 * w.size
    for _ in range(3):
        step()
    nn.clear_memory_cache()
    step()
    # Again allow for a second thread. The cached weight takes four times as much.
    assert nn.memory_stats()["cached"] - before <= once + w.size


class Recurrent:
    """An LSTM of some steps, with products by one more matrix. Nothing is cached while views of the weights exist."""

    def __init__(self, seed=5):
        """Makes weights, inputs and a solver from a seed."""
        rng = np.random.default_rng(seed)
        shapes = {"w": (64 + 96, 4 * 96), "v": (96, 96)}
        weights = {n: rng.standard_normal(s).astype(np.float32) / 10 for n, s in shapes.items()}
        self.weights = {n: nn.Variable.from_numpy_array(v, need_grad=True) for n, v in weights.items()}
        self.x = [nn.Variable.from_numpy_array(rng.standard_normal((40, 64)).astype(np.float32)) for _ in range(4)]
        self.solver = S.Adam(alpha=1e-2)
        self.solver.set_parameters(self.weights)

    def loss(self):
        """Builds the loss."""
        w, v = self.weights.values()
        h, c = F.constant(0, (40, 96)), F.constant(0, (40, 96))
        for x in self.x:
            i, f, g, o = F.split(F.reshape(F.affine(F.concatenate(x, h, axis=1), w), (40, 4, 96)), axis=1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
            h = F.sigmoid(o) * F.tanh(c)
            h = F.batch_matmul(F.tanh(F.batch_matmul(h, v)), v, transpose_b=True)
        return F.mean(h**2)

    def train(self, form, steps=3):
        """Trains some steps, static or eager."""
        loss = self.loss() if form == "static" else None
        for _ in range(steps):
            if loss is None:
                with nn.auto_forward():
                    self.step(self.loss(), True)
            else:
                self.step(loss, False)
        return [w.d.copy() for w in self.weights.values()]

    def step(self, loss, done):
        """Runs a training step. Skips the forward run if `done`."""
        if not done:
            loss.forward(clear_no_need_grad=True)
        self.solver.zero_grad()
        loss.backward(clear_buffer=True)
        self.solver.update()


@pytest.mark.parametrize("form", ["static", "dynamic"])
@pytest.mark.parametrize("plan", ["plain", None])
@pytest.mark.parametrize("type_config", ["float", "double", "half"])
def test_training_has_the_same_bits_with_and_without_caches(form, plan, type_config, monkeypatch):
    if plan:
        monkeypatch.setattr(nn.config, "plan", plan)
    with nn.context_scope(nn.Context([f"cpu:{type_config}"])):
        looked_at = Recurrent()
        views = [w.data.data for w in looked_at.weights.values()]
        expected = looked_at.train(form)
        found = Recurrent().train(form)
    assert len(views) == 2
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)


def test_a_matrix_that_many_products_share_in_one_call():
    """Repeated runs with one right matrix have equal bits, and notice a new matrix."""
    a = nn.Variable.from_numpy_array(rng.standard_normal((6, 40, 200)).astype(np.float32), need_grad=True)
    for transpose_b in (False, True):
        b = nn.Variable.from_numpy_array(rng.standard_normal((1, 200, 200)).astype(np.float32))
        y = F.batch_matmul(a, b, transpose_b=transpose_b)
        results = []
        for i in range(4):
            a.g = 0
            y.forward()
            y.backward(1.0)
            results.append((y.d.copy(), a.g.copy()))
            assert all(np.array_equal(p, q) for p, q in zip(results[0], results[-1], strict=True)), i
        b.d = b.d * 2
        y.forward()
        assert np.array_equal(y.d, results[0][0] * 2)


def test_a_weight_that_threads_share():
    """Graphs that share a weight give right results when threads run them together."""
    from threading import Thread

    w = nn.Variable.from_numpy_array(rng.standard_normal((256, 512)).astype(np.float32))
    x = [rng.standard_normal((n, 256)).astype(np.float32) for n in (32, 48, 64)]
    expected = [F.affine(nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(w.d.copy())) for x in x]
    for y in expected:
        y.forward()
    nets = [F.affine(nn.Variable.from_numpy_array(x), w) for x in x]
    wrong = []

    def run(y, wanted):
        """Runs the graph many times, and records wrong results."""
        for _ in range(50):
            y.forward()
            if not np.array_equal(y.d, wanted):
                wrong.append(y)

    threads = [Thread(target=run, args=(y, e.d.copy())) for y, e in zip(nets, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stale_caches_end_after_another_thread_trains(dtype):
    """A read during a write may see a mixture of old and new values. Once both are done, results must be right."""
    x = rng.standard_normal((32, 1024)).astype(np.float32)
    w = nn.Variable.from_numpy_array(rng.standard_normal((1024, 512)).astype(dtype), need_grad=True)
    w.g = rng.standard_normal(w.shape)
    y = F.affine(nn.Variable.from_numpy_array(x), w)
    solver = S.Sgd(0.001)
    solver.set_parameters({"w": w})

    def predict(done):
        """Runs forward until `done` is set."""
        while not done.is_set():
            y.forward()

    for _ in range(25):
        done = threading.Event()
        thread = threading.Thread(target=predict, args=(done,))
        thread.start()
        try:
            for _ in range(10):
                solver.update()
        finally:
            done.set()
            thread.join()
        y.forward()
        found = y.d.copy()
        fresh = F.affine(nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(w.data.get_data("r").copy()))
        fresh.forward()
        assert np.array_equal(found, fresh.d)
