"""Nested derivatives up to third order are right, with and without `create_graph`."""

import gc
import itertools
import weakref

import numpy as np
import pytest
from support import DOUBLE

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

AT = 0.7
"""The point at which derivatives are computed."""
V = 1.5
"""The vector of products with Jacobians."""


@pytest.fixture(autouse=True)
def double():
    """Runs the test in double precision."""
    with nn.context_scope(DOUBLE):
        yield


def by_value_and_grad(f, **create):
    """Returns the derivative of `f` as a function, by `value_and_grad`."""
    return lambda x: autodiff.value_and_grad(f, **create)(x)[1]


def by_grad(f, **create):
    """Returns the derivative of `f` as a function, by `autodiff.grad`."""

    def derivative(x):
        """Returns the derivative at `x`."""
        with nn.auto_forward(), autodiff.enable_grad():
            x = x if isinstance(x, nn.Variable) else nn.Variable.from_numpy_array(x, need_grad=True)
            x = F.identity(x) if x.requires_grad else x.get_unlinked_variable(need_grad=True)
            return autodiff.grad(f(x), x, **create)[0]

    return derivative


WAYS = {
    "value_and_grad": by_value_and_grad,
    "grad": by_grad,
    "vjp": lambda f, **create: lambda x: autodiff.vjp(f, x, **create)[1],
    "jvp": lambda f, **create: lambda x: autodiff.jvp(f, x, np.array(1.0), **create)[1],
    "jacobian": lambda f, **create: lambda x: autodiff.jacobian(f, x, **create),
    "hessian": lambda f, **create: lambda x: autodiff.hessian(f, x, **create),
}
"""Ways to differentiate a function of a scalar, by name. Each takes `f` and returns the function of its derivative."""
ORDER = {"hessian": 2}
"""The order of the derivative of each way. It is 1 for a way that is not named here."""


def function(x):
    """Returns `sum(exp(2 x))`, the function that the tests differentiate."""
    return F.sum(F.exp(x * 2.0))


def derivative(order):
    """Returns the exact derivative of `function` of this order at the point `AT`."""
    return 2.0**order * np.exp(2 * AT)


@pytest.mark.parametrize("create", [{}, {"create_graph": True}, {"create_graph": False}], ids=str)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_each_way_within_each_other(levels, create):
    """Derivatives of each order are right for every mix of ways.

    All but the outermost get the option `create_graph`.
    """
    for names in itertools.product(WAYS, repeat=levels):
        f = function
        for name in names[:-1]:
            f = WAYS[name](f, **create)
        if names[-1] == "grad" and levels > 1 and not create.get("create_graph"):
            continue  # outside of any function that is differentiated
        got = WAYS[names[-1]](f)(np.array(AT))
        order = sum(ORDER.get(name, 1) for name in names)
        np.testing.assert_allclose(got.d, derivative(order), rtol=1e-9, err_msg=" of ".join(reversed(names)))


@pytest.mark.parametrize("inner", [name for name in WAYS if name != "hessian"])
@pytest.mark.parametrize("outer", WAYS)
def test_variables_captured_by_the_inner_function(inner, outer):
    """d/dx of x times d/dy (x y^2) at y = x is d/dx of 2 x^3."""

    def f(x):
        """A function with a nested derivative that keeps its graph."""
        y = WAYS[inner](lambda y: F.sum(x * y * y), create_graph=True)(x)
        return F.sum(x * y)

    def without(x):
        """The same function without `create_graph`."""
        return F.sum(x * WAYS[inner](lambda y: F.sum(x * y * y))(x))

    expected = 12 * AT if outer == "hessian" else 6 * AT**2
    np.testing.assert_allclose(WAYS[outer](f)(np.array(AT)).d, expected, rtol=1e-12)
    if outer != "grad":
        np.testing.assert_allclose(WAYS[outer](without)(np.array(AT)).d, expected, rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_vector_of_a_product_may_depend_on_the_argument(shape):
    """`jvp` and `vjp` with a vector computed from the argument have the whole derivative."""

    def along(x):
        """A product of the Jacobian with `x` itself."""
        return autodiff.jvp(lambda y: y * y, x, F.reshape(x, shape))[1]

    def back(x):
        """A product of `x` itself with the Jacobian."""
        return autodiff.vjp(lambda y: y * y, x, F.reshape(x, shape))[1]

    for f in (along, back):
        _, g = autodiff.value_and_grad(lambda x, f=f: F.sum(f(x)))(np.array([AT]))
        np.testing.assert_allclose(g.d, [4 * AT], rtol=1e-12)


def test_values_of_inner_calls_are_differentiated_too():
    """The values that `value_and_grad`, `vjp` and `jvp` return can be differentiated, as their gradients can."""
    for inner in (
        lambda x: autodiff.value_and_grad(lambda y: F.sum(y * y))(x)[0],
        lambda x: autodiff.vjp(lambda y: y * y, x)[0],
        lambda x: autodiff.jvp(lambda y: y * y, x)[0],
    ):
        _, g = autodiff.value_and_grad(lambda x, inner=inner: F.sum(inner(x)))(np.array(AT))
        np.testing.assert_allclose(g.d, 2 * AT)


def test_no_grad_and_detach_make_constants():
    """An outer derivative treats values from `no_grad` and `detach` as constants."""

    def f(x):
        """A function with constant derivatives inside."""
        with autodiff.no_grad():
            _, a = autodiff.value_and_grad(lambda y: F.sum(y * y))(x)
        b = autodiff.jacobian(lambda y: y * y, x.detach())
        return F.sum(x * a) + F.sum(F.reshape(b, x.shape) * x)

    _, g = autodiff.value_and_grad(f)(np.array([AT]))
    np.testing.assert_allclose(g.d, [4 * AT])


@pytest.mark.parametrize("need_grad", [True, False])
@pytest.mark.parametrize("name", WAYS)
def test_the_argument_differs_from_an_equal_captured_variable(name, need_grad):
    """The derivative of `w exp(x)` by `x` at `x = w` treats `w` as a constant."""
    with nn.auto_forward():
        w = nn.Variable.from_numpy_array(np.array(AT), need_grad=need_grad)
    g = WAYS[name](lambda x: F.sum(w * F.exp(x)))(w)
    np.testing.assert_allclose(g.d, AT * np.exp(AT), rtol=1e-12)


def test_a_derivative_that_is_not_nested_has_no_graph():
    """Also after a nested derivative, and after a function that raised."""

    def fail(x):
        """A function that raises."""
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        autodiff.value_and_grad(fail)(np.array(AT))
    w = nn.Variable.from_numpy_array(np.array([AT]), need_grad=True)
    held = []

    def f(x):
        """A function that records a weak reference to an intermediate value."""
        h = F.exp(x)
        held.append(weakref.ref(h))
        return F.sum(h * h)

    _, g = autodiff.value_and_grad(f)(w)
    assert g.parent is None and not g.requires_grad
    del g, _
    gc.collect()
    assert held[0]() is None
    _, g = autodiff.value_and_grad(f, create_graph=True)(w)
    assert g.requires_grad
    for found in (autodiff.vjp(f, w)[1], autodiff.jvp(f, w, 1.0)[1], autodiff.jacobian(f, w), autodiff.hessian(f, w)):
        assert not found.requires_grad or found.parent is None


def test_value_and_grad_makes_a_graph_with_create_graph():
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.array([AT]), need_grad=True)
        _, g = autodiff.value_and_grad(lambda y: F.sum(y**3), create_graph=True)(x)
        (second,) = autodiff.grad(F.sum(g), x)
    np.testing.assert_allclose(second.d, [6 * AT], rtol=1e-12)
