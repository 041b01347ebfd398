"""Users' operations with graph rules: derivatives of any order."""

import numpy as np
import pytest
from support import UnaryFunction, leaf

import kinnor as nn
import kinnor.functions as F


class Cube(UnaryFunction):
    """The cube of one input, without a graph rule. `runs` counts its recomputations."""

    reads_input = True

    runs = 0
    """Number of recomputations so far."""

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].data.data[...] = inputs[0].data.data ** 3

    def recompute_impl(self, inputs, outputs):
        """Computes the output again, and counts the call in `Cube.runs`."""
        Cube.runs += 1
        self.forward_impl(inputs, outputs)

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        g = 3 * inputs[0].data.data ** 2 * outputs[0].grad.data
        inputs[0].grad.data[...] = g + (inputs[0].grad.data if accum[0] else 0)


class SmoothCube(Cube):
    """The cube, with a graph rule."""

    def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
        """Returns `3 x^2 gy` as a graph, after a check of its arguments."""
        assert propagate_down == [True]
        assert all(isinstance(v, nn.Variable) for v in [*inputs, *outputs, *grad_outputs])
        return [3 * inputs[0] ** 2 * grad_outputs[0]]


class Product(Cube):
    """A product of two inputs, with a graph rule."""

    def grad_depends_input_data(self, i, j):
        """Declares that the gradient of an input reads the other inputs."""
        return i != j

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].data.data[...] = inputs[0].data.data * inputs[1].data.data

    def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
        """Returns the gradients of the requested inputs as graphs, None for the others."""
        (a, b), (g,) = inputs, grad_outputs
        return [b * g if propagate_down[0] else None, a * g if propagate_down[1] else None]


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_gradients(dynamic):
    """A user's graph rule gives derivatives up to the third order."""
    x = leaf(2.0, -1.0)
    with nn.auto_forward(dynamic):
        y = SmoothCube()(x)
        (dx,) = nn.grad(y, x)
        (ddx,) = nn.grad(F.sum(dx), x)
        (dddx,) = nn.grad(F.sum(ddx), x)
    nn.forward_all([dx, ddx, dddx])
    np.testing.assert_allclose(dx.d, 3 * x.d**2)
    np.testing.assert_allclose(ddx.d, 6 * x.d)
    np.testing.assert_allclose(dddx.d, [6, 6])


def test_the_rule_and_the_kernel_agree_inside_a_graph():
    x = leaf(0.5, 1.5)
    loss = F.sum(F.sin(SmoothCube()(x * 2)) * x)
    loss.forward()
    loss.backward()
    (dx,) = nn.grad(loss, x)
    dx.forward()
    np.testing.assert_allclose(dx.d, x.g, rtol=1e-5)


def test_only_wanted_gradients_are_asked_for():
    """A user's graph rule is called only for inputs that need a gradient."""
    a, b = leaf(2.0), leaf(5.0, need_grad=False)
    y = Product()(a, b)
    (da,) = nn.grad(y, a)
    da.forward()
    assert da.d.tolist() == [5.0]
    both = nn.grad(Product()(a, a), a)
    both[0].forward()
    assert both[0].d.tolist() == [4.0]


def test_the_error_of_a_missing_rule_names_the_method_to_write():
    x = leaf(2.0)
    with pytest.raises(NotImplementedError, match="grad of Cube: expected the class to define gradient_impl"):
        nn.grad(Cube()(x), x)


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        ([], ValueError, "expected 1 gradients, got 0"),
        ([3.0], TypeError, "float"),
        ([nn.Variable((7,))], ValueError, "a gradient of shape .* for input 0"),
        (None, TypeError, "iterable"),
    ],
)
def test_bad_rules_are_refused(result, error, text):
    class Bad(Cube):
        """A cube whose rule returns a wrong result."""

        def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
            """Returns the gradient of each input as a graph."""
            return result

    x = leaf(2.0)
    with pytest.raises(error, match=text):
        nn.grad(Bad()(x), x)


def test_an_exception_in_a_rule_is_not_wrapped():
    class Broken(Cube):
        """A cube whose rule raises."""

        def gradient_impl(self, inputs, outputs, grad_outputs, propagate_down):
            """Raises an error of the user's own."""
            raise KeyError("mine")

    x = leaf(2.0)
    y = Broken()(x)
    with pytest.raises(KeyError, match="mine"):
        nn.grad(y, x)
    y.forward()
    assert y.d.tolist() == [8.0]


def test_recomputation_calls_recompute_impl():
    """A dropped output of a user's function is restored by `recompute_impl`."""
    before = Cube.runs
    x = leaf(2.0)
    with nn.recompute():
        h = Cube()(F.exp(x))
        y = F.sum(h * h)
    y.forward()
    y.backward()
    assert Cube.runs > before
    np.testing.assert_allclose(x.g, 6 * np.exp(12), rtol=1e-5)


def test_outputs_that_were_cleared_can_be_written_again():
    x = leaf(2.0)
    h = Cube()(F.exp(x))
    y = F.sum(h * 2)
    for _ in range(2):
        y.forward(clear_buffer=True)
        np.testing.assert_allclose(y.d, 2 * np.exp(6), rtol=1e-5)
