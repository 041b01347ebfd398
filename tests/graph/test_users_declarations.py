"""Optional declarations of users' operations: in-place outputs, written inputs, additional reads."""

import numpy as np
import pytest
from support import UnaryFunction, leaf

import kinnor as nn
import kinnor.functions as F


class Doubled(UnaryFunction):
    """Doubles its input in place."""

    level = 2
    """The value of `inplace_data`."""

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].data.data[...] = inputs[0].data.data * 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        inputs[0].grad.data[...] = 2 * outputs[0].grad.data + (inputs[0].grad.data if accum[0] else 0)

    def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
        """Returns the gradient of each input as a graph."""
        return [2 * grad_outputs[0]]

    def inplace_data(self, i):
        """Declares how the output shares the memory of the input: the number in `level`."""
        return self.level


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_place(dynamic):
    """A user's function that declares to work in place shares the memory of its input and output."""
    x = leaf(1, 2)
    with nn.auto_forward(dynamic):
        h = x * 3
        y = Doubled()(h)
        z = F.sum(y * y)
    if not dynamic:
        z.forward(clear_no_need_grad=True)
    assert y.d.tolist() == h.d.tolist() == [6, 12]
    f = y.parent
    assert (f.inplace_data(0), f.inplace_data_with(0)) == (2, 0)
    x.grad.zero()
    z.backward(clear_buffer=True)
    assert x.g.tolist() == [72, 144]


def test_in_place_is_refused_if_a_gradient_reads_the_values():
    x = leaf(1, 2)
    with pytest.raises(nn.GraphError, match="is needed by the gradient of exp"):
        Doubled()(F.exp(x))
    h = x * 3
    held = F.sin(h)
    with pytest.raises(nn.GraphError, match="feeds other functions too"):
        Doubled()(h)
    with pytest.raises(nn.GraphError, match="a leaf that requires grad"):
        Doubled()(x)
    assert held.parent is not None and x.d.tolist() == [1, 2]


class Widened(Doubled):
    """Declares to be in place with a larger output."""

    def setup_impl(self, inputs, outputs):
        """Gives the output twice as many elements as the input."""
        outputs[0].reset_shape((*inputs[0].shape, 2), True)


class Wrong(Doubled):
    """Declares an in-place level that does not exist."""

    level = 3
    """A level that NNabla does not define."""


def test_memory_that_cannot_be_shared_is_refused():
    with pytest.raises(nn.ShapeError, match="output 0 to have the size of input 0, whose memory it shares"):
        Widened()(leaf(1, 2) * 1)
    with pytest.raises(nn.RangeError, match="Wrong: expected `inplace_data` to return 0 to 2, got 3"):
        Wrong()(leaf(1, 2) * 1)


class Counted(UnaryFunction):
    """Returns its first input, and adds 1 to the second in each forward run. Recomputation does not count."""

    def forward_impl(self, inputs, outputs):
        """Copies the first input, and adds 1 to the second."""
        inputs[1].data.data[...] += 1
        outputs[0].data.data[...] = inputs[0].data.data

    def recompute_impl(self, inputs, outputs):
        """Copies the first input. Does not count."""
        outputs[0].data.data[...] = inputs[0].data.data

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        inputs[0].grad.data[...] = outputs[0].grad.data + (inputs[0].grad.data if accum[0] else 0)

    def overwrite_input_data_in_forward(self, i):
        """Declares that a forward run writes to the second input."""
        return i == 1

    def prohibit_clear_input_buffers(self):
        """Declares if clearing the inputs is forbidden."""
        return self.keeps


@pytest.mark.parametrize("keeps", [False, True])
def test_written_and_preserved_inputs(keeps):
    """A write to an input lasts to the next run. `prohibit_clear_input_buffers` keeps inputs from being cleared."""
    x, n = leaf(1, 2), leaf(0, need_grad=False)
    function = Counted()
    function.keeps = keeps
    h = x * 3
    y = F.sum(function(h, n))
    for _ in range(2):
        y.forward(clear_no_need_grad=True)
    assert n.d.tolist() == [2]
    assert h.data.clear_called is not keeps


class Exponential(Doubled):
    """Its `backward_impl` computes the values again, and its `gradient_impl` reads the output."""

    level = 0
    """The value of `inplace_data`: no shared memory."""

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].data.data[...] = np.exp(inputs[0].data.data)

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        g = np.exp(inputs[0].data.data) * outputs[0].grad.data
        inputs[0].grad.data[...] = g + (inputs[0].grad.data if accum[0] else 0)

    def grad_depends_input_data(self, i, j):
        """Declares that the gradients read the inputs."""
        return True

    def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
        """Returns the gradient of each input as a graph."""
        return [outputs[0] * grad_outputs[0]]

    def auto_grad_depends_output_data(self, i, o):
        """Declares that `gradient_impl` reads the output."""
        return True


def test_additional_reads_of_a_gradient_graph():
    """A declaration for graph rules alone keeps the output that the rule reads."""
    f = Exponential()(leaf(1)).parent
    assert not f.grad_depends_output_data(0, 0) and f.auto_grad_depends_output_data(0, 0)
    x = leaf(1)
    with nn.auto_forward():
        y = Exponential()(x) * 1
        (g,) = nn.grad([y], [x])
    np.testing.assert_allclose(g.d, np.exp([1]), rtol=1e-6)


@pytest.mark.parametrize("clears", [False, True])
def test_both_gradients_of_a_function_are_right(clears):
    """The kernel gradient and `nn.grad` of a user's graph rule agree, with and without clearing."""
    x = leaf(1, 2)
    h = Exponential()(x * 1)
    y = F.sum(h * 3) + F.sum(x)
    for _ in range(2):
        x.g = 0
        y.forward(clear_no_need_grad=clears)
        y.backward(clear_buffer=clears)
        np.testing.assert_allclose(x.g, 3 * np.exp([1, 2]) + 1, rtol=1e-6)
    (g,) = nn.grad([y], [x])
    g.forward()
    np.testing.assert_allclose(g.d, 3 * np.exp([1, 2]) + 1, rtol=1e-6)
