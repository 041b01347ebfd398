"""Users' operations compute in the precision of the context, as built-in ones do."""

import numpy as np
import pytest
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F

X = np.array([[0.1, 0.3, -0.7]])
"""Numbers that float32 does not hold."""


class Squared(UnaryFunction):
    """The square of the input. `whole` tells whether arrays are assigned as a whole or by element."""

    reads_input = True

    def __init__(self, whole):
        super().__init__()
        self.whole = whole

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        if self.whole:
            outputs[0].d = inputs[0].d ** 2
        else:
            outputs[0].d[...] = inputs[0].d ** 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        gradient = 2 * inputs[0].d * outputs[0].g
        if accum[0]:
            inputs[0].g += gradient
        elif self.whole:
            inputs[0].g = gradient
        else:
            inputs[0].g[...] = gradient


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("run", ["backward", "autodiff", "twice"])
@pytest.mark.parametrize("at_once", [False, True])
def test_users_operations_keep_double_precision(whole, run, at_once):
    """Values and gradients have the digits of float64, also where gradients are added up."""
    with nn.context_scope(nn.Context(["cpu:double"])), nn.auto_forward(at_once):
        x = nn.Variable.from_numpy_array(X, need_grad=True)
        h = F.sin(x)
        y = Squared(whole)(h)
        y.persistent = True
        z = F.sum(F.sin(y) + (Squared(whole)(h) if run == "twice" else 0.0))
        z.forward()
        if run == "autodiff":
            (g,) = nn.autodiff.grad(z, [x])
            g = g.d
        else:
            x.grad.zero()
            z.backward()
            g = x.g
    assert y.d.dtype == g.dtype == np.float64
    square = np.sin(X) ** 2
    np.testing.assert_allclose(y.d, square, rtol=1e-15)
    slope = np.cos(square) + (run == "twice")
    np.testing.assert_allclose(g, slope * 2 * np.sin(X) * np.cos(X), rtol=1e-14)


@pytest.mark.parametrize("context", ["float", "half", "bfloat16"])
def test_users_operations_keep_the_type_of_other_contexts(context):
    """The output has the type of the context or float32, and its values are right to the precision of the context."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        y = Squared(True)(nn.Variable.from_numpy_array(X.astype(np.float32)))
        y.persistent = True
        F.sum(y).forward()
    assert y.d.dtype != np.float64
    np.testing.assert_allclose(np.asarray(y.d, np.float64), X**2, rtol=2e-2)
