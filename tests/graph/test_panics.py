"""A panic of the engine becomes an exception that programs can catch. Afterwards the graph is unchanged.

The tests provoke panics through a user's function that raises `nn.InternalError`, the class of panics, during a
run.
"""

import itertools

import numpy as np
import pytest
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

SAID = "a defect of Kinnor"
"""Text that the error of every panic contains."""


class Breaking(UnaryFunction):
    """A user's function that doubles its input, and raises the error of a panic in the method that `when` names."""

    when = None
    """The method that panics, or None."""

    def breaks(self, when):
        """Raises the error of a panic if `when` names this method."""
        if self.when == when:
            raise nn.InternalError(f"on purpose in {when}")

    def setup_impl(self, inputs, outputs):
        """Gives the output the shape of the input. May raise."""
        self.breaks("setup")
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs, outputs):
        """Doubles the input. May raise."""
        self.breaks("forward")
        outputs[0].d = 2 * inputs[0].d

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        self.breaks("backward")
        inputs[0].g = 2 * outputs[0].g + (inputs[0].g if accum[0] else 0)

    def gradient_impl(self, x, y, gy, wanted):
        """Returns the gradient as a graph. May raise."""
        self.breaks("gradient")
        return [gy[0] * 2]


class Network:
    """A graph with such a function, run once."""

    def __init__(self, **forward):
        """Builds the graph, and runs a step with these arguments of `forward`."""
        values = np.random.RandomState(3).randn(4, 5).astype(np.float32)
        self.x = nn.Variable.from_numpy_array(values, need_grad=True)
        self.breaking = Breaking()
        self.h = F.tanh(F.exp(self.x))
        self.y = F.sum(F.sin(self.breaking(self.h)), axis=1)
        self.y.g = 7.0
        self.run(**forward)

    def run(self, **forward):
        """Returns values and gradients of a training step as bytes."""
        self.breaking.when = None
        self.x.grad.zero()
        self.y.forward(**forward)
        self.y.backward()
        return self.y.d.tobytes(), self.x.g.tobytes()


@pytest.fixture(autouse=True)
def quiet(capfd):
    """Discards the engine's report of a panic."""
    yield
    capfd.readouterr()


def test_the_class():
    """The error of a panic is a `RuntimeError` that asks for a report."""
    assert issubclass(nn.InternalError, nn.Error)
    assert issubclass(nn.InternalError, RuntimeError)
    error = nn.InternalError("index 3")
    assert SAID in str(error)
    assert str(error).endswith("index 3")
    assert str(nn.InternalError(str(error))) == str(error)
    assert repr(error) == "InternalError('index 3')"


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("forward", [{}, {"clear_no_need_grad": True}, {"memory_budget": 1 << 20}])
def test_a_graph_runs_again_to_the_same_bits(when, forward, runs):
    """After a panic in any phase, the same graph runs with its former results."""
    net = Network(**forward)
    for _ in range(runs):
        expected = net.run(**forward)
    net.x.grad.zero()
    net.breaking.when = when
    with pytest.raises(nn.Error, match=f"on purpose in {when}") as caught:
        net.y.forward(**forward)
        net.y.backward()
    assert type(caught.value) is nn.InternalError
    assert SAID in str(caught.value)
    assert (net.y.g == 7).all()
    assert net.run(**forward) == expected
    assert net.run(**forward) == expected


def test_hooks_that_panic():
    """A panic in a hook is raised, the initial gradient stays, and the graph runs again to the same bits."""

    def panics(_):
        """A hook that panics."""
        raise nn.InternalError("in a hook")

    net = Network()
    expected = net.run()
    for hook in ("function_pre_hook", "function_post_hook"):
        with pytest.raises(nn.InternalError, match="in a hook"):
            net.y.forward(**{hook: panics})
        with pytest.raises(nn.InternalError, match="in a hook"):
            net.y.backward(**{hook: panics})
        assert (net.y.g == 7).all()
        assert net.run() == expected
    for v in (net.x, net.h):
        handle = v.register_hook(panics)
        net.x.g = 5.0
        with pytest.raises(nn.InternalError, match="in a hook"):
            net.y.backward()
        assert (net.y.g == 7).all()
        assert (net.x.g == 5).all() or v is net.x
        handle.remove()
        assert net.run() == expected


@pytest.mark.parametrize("create_graph", [False, True])
def test_autodiff(create_graph):
    """A panic in `autodiff.backward` keeps gradients and modes, and the graph can be differentiated again."""
    net = Network()
    loss = F.sum(net.y)
    loss.forward()
    (expected,) = autodiff.grad(loss, net.x, retain_graph=True)
    net.x.g = 5.0
    net.breaking.when = "gradient" if create_graph else "backward"
    with pytest.raises(nn.InternalError):
        autodiff.backward(loss, create_graph=create_graph, retain_graph=True)
    assert (net.x.g == 5).all()
    assert not nn.get_auto_forward()
    net.breaking.when = None
    (again,) = autodiff.grad(loss, net.x)
    assert again.d.tobytes() == expected.d.tobytes()


def test_values_that_are_computed_again():
    """A panic during recomputation leaves the graph usable."""
    x = nn.Variable.from_numpy_array(np.linspace(0, 1, 6, dtype=np.float32), need_grad=True)
    breaking = Breaking()
    with nn.recompute():
        h = breaking(F.exp(x))
    y = F.sum(F.sin(h))

    def step():
        """Runs forward and backward. Returns the gradient as bytes."""
        x.grad.zero()
        y.forward()
        y.backward()
        return x.g.tobytes()

    expected = step()
    y.forward()
    breaking.when = "forward"
    with pytest.raises(nn.InternalError):
        y.backward()
    assert not nn.config.in_recomputing
    breaking.when = None
    assert step() == expected


def test_forward_all_resets_persistent_flags_after_a_panic():
    net = Network()
    net.breaking.when = "forward"
    with pytest.raises(nn.InternalError):
        nn.forward_all([net.y, net.h])
    assert not net.y.persistent
    assert not net.h.persistent


def test_a_set_up_that_panics():
    """A panic while shapes are set up leaves the graph usable."""
    net = Network()
    expected = net.run()
    net.breaking.when = "setup"
    with pytest.raises(nn.InternalError):
        net.breaking(net.x)
    net.x.reset_shape((5, 4))
    with pytest.raises(nn.InternalError):
        net.y.forward()
    net.x.reset_shape((4, 5))
    assert net.run() == expected


def test_a_method_that_panics_is_caught_by_its_class():
    """A panic inside a call from Python is raised as InternalError."""

    class Items:
        """An iterable that panics."""

        def __iter__(self):
            """Raises the error of a panic."""
            raise nn.InternalError("in an iterator")

    for call in (
        lambda: nn.Variable((2,)).reset_shape(Items()),
        lambda: nn.NdArray(2).view(Items()),
        lambda: F.reshape(nn.Variable((2,)), Items()),
        lambda: nn.forward_all(Items()),
    ):
        with pytest.raises(nn.InternalError, match=SAID):
            call()


def test_an_infinite_gradient():
    """A graph rule that returns an endless iterator is refused."""

    class Endless(Breaking):
        """A function whose gradient is an infinite iterator."""

        def gradient_impl(self, x, y, gy, wanted):
            """Returns the gradient of each input as a graph."""
            return itertools.repeat(None)

    x = nn.Variable((2,), need_grad=True)
    y = Endless()(x)
    y.forward()
    with pytest.raises(nn.CallError, match="at most"):
        nn.grad([y], [x])
