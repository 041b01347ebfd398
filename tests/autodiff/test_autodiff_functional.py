"""`value_and_grad`, `vjp`, `jvp`, `jacobian` and `hessian` against closed forms. `gradcheck` finds wrong gradients."""

import numpy as np
import pytest
from support import DOUBLE, UnaryFunction

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff


@pytest.fixture(autouse=True, params=["static", "dynamic"])
def mode(request):
    """Runs in both modes, which must not matter, and in double precision."""
    with nn.auto_forward(request.param == "dynamic"), nn.context_scope(DOUBLE):
        yield request.param


A = np.array([[1.0, 2.0, -1.0], [0.5, -3.0, 4.0]])
"""The matrix of a linear map from R^3 to R^2."""
X = np.array([0.3, -0.7, 1.1])
"""A point of R^3 to differentiate at."""


def variable(values, need_grad=True):
    """Returns a float64 variable."""
    return nn.Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


def product(x):
    """Returns the product of the matrix `A` and the vector `x`."""
    return F.reshape(F.batch_matmul(variable(A[None], False), F.reshape(x, (1, 3, 1))), (2,))


def near(got, expected):
    """Asserts that the values of the variable `got` equal an array up to float64 rounding."""
    np.testing.assert_allclose(got.d, expected, rtol=1e-12, atol=1e-14)


def test_value_and_grad():
    """Values, gradients by chosen arguments, and auxiliary results."""
    value, g = autodiff.value_and_grad(lambda x: F.sum(F.sin(x)))(X)
    near(value, np.sin(X).sum())
    near(g, np.cos(X))
    f = autodiff.value_and_grad(lambda x, y, scale=1: (F.sum(x * y) * scale, "aux"), (1, 0), has_aux=True)
    (value, aux), (gy, gx) = f(X, variable(X + 1), scale=2)
    assert aux == "aux"
    near(gx, 2 * (X + 1))
    near(gy, 2 * X)
    _, g = autodiff.value_and_grad(lambda x, y: F.sum(x), 1)(X, X)
    near(g, 0 * X)


def test_vjp():
    """Products with the transposed Jacobian, for one or several inputs and outputs."""
    y, g = autodiff.vjp(product, X, np.array([1.0, 10.0]))
    near(y, A @ X)
    near(g, np.array([1.0, 10.0]) @ A)
    _, (gx, gw) = autodiff.vjp(lambda x, w: (x * w, F.sum(x)), (X, X + 1), (X * 2, 3.0))
    near(gx, X * 2 * (X + 1) + 3)
    near(gw, 2 * X * X)
    _, g = autodiff.vjp(lambda x: F.sum(x * x), X)
    near(g, 2 * X)
    for v in (None, X, (X, X)):
        with pytest.raises(RuntimeError):
            autodiff.vjp(product, X, v)
    with pytest.raises(TypeError, match="returns Variables"):
        autodiff.vjp(lambda x: 3, X)


def test_jvp():
    """Products with the Jacobian, for one or several inputs and outputs."""
    v = np.array([2.0, -1.0, 0.5])
    y, t = autodiff.jvp(product, X, v)
    near(y, A @ X)
    near(t, A @ v)
    (_, _), (t, s) = autodiff.jvp(lambda x, w: (x * w, F.sum(F.exp(x))), (X, X + 1), (v, -v))
    near(t, v * (X + 1) - X * v)
    near(s, (np.exp(X) * v).sum())
    _, t = autodiff.jvp(lambda x: F.sin(x), np.array(0.5))
    near(t, np.cos(0.5))
    _, t = autodiff.jvp(lambda x, w: x * 2, (X, X), (v, v))
    near(t, 2 * v)
    with pytest.raises(RuntimeError):
        autodiff.jvp(product, X)


def test_jacobian():
    """Jacobians of linear and elementwise functions, for one or several inputs and outputs."""
    near(autodiff.jacobian(product, X), A)
    near(autodiff.jacobian(F.exp, X), np.diag(np.exp(X)))
    by_x, by_w = autodiff.jacobian(lambda x, w: x * F.broadcast(F.reshape(w, (1,)), (3,)), (X, np.array(2.0)))
    near(by_x, 2 * np.eye(3))
    near(by_w, X)
    (first, _), (_, last) = autodiff.jacobian(lambda x, w: (x, w * w), (X, X))
    near(first, np.eye(3))
    near(last, np.diag(2 * X))
    near(autodiff.jacobian(lambda x: x[:0], X), np.zeros((0, 3)))
    constant = autodiff.jacobian(lambda x: variable(X, False) * 2, X)
    near(constant, np.zeros((3, 3)))
    with pytest.raises(RuntimeError):
        autodiff.jacobian(lambda x: variable(X, False) * 2, X, strict=True)


def test_jacobians_can_be_differentiated():
    """With `create_graph`, the result of `jacobian` can be differentiated."""
    x = variable(X)
    with nn.auto_forward():
        j = autodiff.jacobian(lambda x: x * x * x, x, create_graph=True)
        (g,) = autodiff.grad(F.sum(j), x)
    near(g, 6 * X)


def test_hessian():
    """Second derivatives, also across two inputs."""
    near(autodiff.hessian(lambda x: F.sum(x**3), X), np.diag(6 * X))
    near(autodiff.hessian(lambda x: F.sum(product(x) ** 2), X), 2 * A.T @ A)
    near(autodiff.hessian(F.sum, X), np.zeros((3, 3)))
    (xx, xy), (yx, yy) = autodiff.hessian(lambda x, y: F.sum(x * x * y), (X, X + 1))
    near(xx, np.diag(2 * (X + 1)))
    near(xy, np.diag(2 * X))
    near(yx, np.diag(2 * X))
    near(yy, np.zeros((3, 3)))
    with pytest.raises(RuntimeError, match="one element"):
        autodiff.hessian(F.exp, X)


def test_gradients_of_arguments_stay():
    """`hessian` and `gradcheck` change neither values nor gradients of their arguments."""
    x = variable(X)
    autodiff.hessian(lambda x: F.sum(x**3), x)
    autodiff.gradcheck(F.tanh, x)
    assert not x.has_grad and x.d.tolist() == X.tolist()


@pytest.mark.parametrize("check", [autodiff.gradcheck, autodiff.gradgradcheck])
def test_gradcheck_accepts_right_gradients(check):
    """`gradcheck` and `gradgradcheck` accept right gradients, and require a leaf with grad."""
    assert check(lambda x, y: (x * F.exp(y), F.sum(F.sin(x))), (X, X + 1))
    assert check(lambda x, w: F.affine(x, w), (A, variable(np.ones((3, 2)) * X[:, None])))
    assert check(lambda x, c: x * c, (variable(X), variable(X, False)))
    with pytest.raises(ValueError, match="requires grad"):
        check(F.exp, variable(X, False))


class Wrong(UnaryFunction):
    """Doubles its input, with a wrong gradient of three."""

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].d = inputs[0].d * 2

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        inputs[0].g = outputs[0].g * 3 + (inputs[0].g if accum[0] else 0)


def test_gradcheck_finds_wrong_gradients():
    """`gradcheck` reports a wrong gradient, and a function whose values change between calls."""
    with pytest.raises(RuntimeError, match=r"(?s)output 0 by input 0.*by kernels"):
        autodiff.gradcheck(lambda x: Wrong()(x), X)
    assert not autodiff.gradcheck(lambda x: Wrong()(x), X, raise_exception=False)
    drawn = iter(range(100))
    with pytest.raises(RuntimeError, match="the second time"):
        autodiff.gradcheck(lambda x: x * next(drawn), X)
