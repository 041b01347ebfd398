"""Hooks on gradients, retained gradients, and attributes of variables."""

import gc
import weakref

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

pytestmark = pytest.mark.usefixtures("mode")


both = pytest.mark.parametrize("create_graph", [False, True])
"""Runs a test with and without `create_graph`."""


@both
def test_a_hook_sees_the_sum_once(create_graph):
    """A hook is called once for each run, with the sum of all contributions to the gradient."""
    x = leaf(1, 2)
    h = x * x
    seen = []
    h.register_hook(lambda g: seen.append(g.d.tolist()))
    x.register_hook(lambda g: seen.append(g.d.tolist()))
    autodiff.backward(run(F.sum(h * 2 + h * 3)), create_graph=create_graph)
    assert seen == [[5, 5], [10, 20]]


@both
def test_hooks_replace_in_the_order_of_registration(create_graph):
    """Each hook gets the gradient that the hook before it returned; None keeps the gradient."""
    x = leaf(1, 2)
    h = x * x
    h.register_hook(lambda g: g + 1)
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: None)
    x.register_hook(lambda g: g - 5)
    y = run(F.sum(h))
    autodiff.backward(y, create_graph=create_graph, retain_graph=True)
    assert x.g.tolist() == [35, 75]
    gx, gh = autodiff.grad(y, [x, h], create_graph=create_graph)
    assert (gx.d.tolist(), gh.d.tolist()) == ([35, 75], [20, 20])


def test_a_hook_on_the_root_and_on_a_leaf_that_is_root():
    """Hooks on a root see and change the initial gradient."""
    x = leaf(3)
    x.register_hook(lambda g: g * 2)
    autodiff.backward(x)
    y = x * 5
    y.register_hook(lambda g: g * 7)
    autodiff.backward(run(y))
    assert x.g.tolist() == [2 + 70]


@both
def test_removed_hooks_are_not_called(create_graph):
    """A removed hook is not called; removing it twice is allowed, and `with` removes it."""
    x = leaf(3)
    handle = x.register_hook(lambda g: g * 2)
    y = run(x * 5)
    autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    handle.remove()
    handle.remove()
    autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    with x.register_hook(lambda g: g * 3):
        autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    autodiff.backward(y)
    assert x.g.tolist() == [10 + 5 + 15 + 5]


def test_a_removed_hook_is_freed():
    """Removing a hook drops the reference to its function."""

    class Callback:
        """A hook that leaves the gradient unchanged."""

        def __call__(self, g):
            """Returns None, which leaves the gradient unchanged."""
            return

    x, callback = leaf(3), Callback()
    reference = weakref.ref(callback)
    handle = x.register_hook(callback)
    del callback
    gc.collect()
    assert reference() is not None
    handle.remove()
    assert reference() is None


@pytest.mark.parametrize(
    ("hook", "error", "words"),
    [
        (lambda g: 3, TypeError, "None or a Variable"),
        (lambda g: F.sum(g), RuntimeError, r"shape \(2,\)"),
        (lambda g: 1 / 0, ZeroDivisionError, "division"),
    ],
)
@both
def test_hooks_that_fail_change_nothing(hook, error, words, create_graph):
    x, w = leaf(1, 2), leaf(3, 4)
    handle = x.register_hook(hook)
    y = run(F.sum(x * w))
    with pytest.raises(error, match=words):
        autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    assert not (x.has_grad or w.has_grad)
    assert autodiff.is_grad_enabled()
    handle.remove()
    autodiff.backward(y)
    assert (x.g.tolist(), w.g.tolist()) == ([3, 4], [1, 2])


def test_hooks_that_are_refused():
    """Hooks must be callable, and need a variable that requires grad, or a leaf."""
    x, c = leaf(1), leaf(1, need_grad=False)
    with pytest.raises(TypeError, match="something to call"):
        x.register_hook(3)
    for register in (c.register_hook, c.register_post_accumulate_grad_hook):
        with pytest.raises(RuntimeError, match="requires grad"):
            register(print)
    with pytest.raises(RuntimeError, match="expected a leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


@both
def test_hooks_after_accumulation(create_graph):
    """`register_post_accumulate_grad_hook` calls a hook with the leaf only after `backward` has added to `.g`."""
    x, w = leaf(1, 2), leaf(3, 4)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda v: seen.append((v == x, v.g.tolist())))
    y = run(F.sum(x * w))
    autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    autodiff.grad(y, x, retain_graph=True)
    autodiff.backward(y, retain_graph=True, inputs=w)
    assert seen == [(True, [3, 4]), (True, [6, 8])]
    handle.remove()
    autodiff.backward(y)
    assert len(seen) == 2


def test_a_solver_may_step_in_a_hook():
    x = leaf(1, 2)
    solver = nn.solvers.Sgd(lr=0.5)
    solver.set_parameters({"x": x})

    def step(_):
        """A hook that updates the parameters."""
        solver.update()
        solver.zero_grad()

    x.register_post_accumulate_grad_hook(step)
    autodiff.backward(run(F.sum(x * x)))
    assert x.d.tolist() == [0, 0] and not x.has_grad


def test_retained_gradients_add_up():
    """`retain_grad` keeps the gradient of an intermediate variable, and sums it over runs."""
    x = leaf(1, 2)
    h = x * x
    h.retain_grad()
    assert h.retains_grad and not x.retains_grad
    y = run(F.sum(h * 3))
    autodiff.backward(y, retain_graph=True)
    autodiff.grad(y, x, retain_graph=True)
    autodiff.backward(y)
    assert (h.g.tolist(), x.g.tolist()) == ([6, 6], [12, 24])
    x.retain_grad()
    assert not x.retains_grad
    with pytest.raises(RuntimeError, match="requires grad"):
        leaf(1, need_grad=False).retain_grad()


def test_a_retained_gradient_where_no_leaf_follows():
    """A retained gradient is computed even if no leaf above it needs one."""
    x = leaf(1, 2)
    h = x * x
    h.retain_grad()
    y = run(F.sum(h * 3))
    x.need_grad = False
    autodiff.backward(y)
    assert h.g.tolist() == [3, 3]


@both
def test_running_backward_in_a_hook(create_graph):
    """A hook may run backward of another graph, and `grad` of the same graph."""
    x, w = leaf(1, 2), leaf(3, 4)
    h = x * x
    y, z = run(F.sum(h * 3)), run(F.sum(w * w))
    seen = []

    def hook(g):
        """Records the gradient. The first call also runs backward of another graph and `grad` of this graph."""
        seen.append(g.d.tolist())
        if len(seen) == 1:
            autodiff.backward(z)
            seen.append(autodiff.grad(y, x, retain_graph=True)[0].d.tolist())

    h.register_hook(hook)
    autodiff.backward(y, retain_graph=True, create_graph=create_graph)
    assert seen == [[3, 3], [3, 3], [6, 12]]
    assert (x.g.tolist(), w.g.tolist()) == ([6, 12], [6, 8])


def test_attributes_of_variables():
    """`requires_grad`, `is_leaf`, `grad_fn` and `detach` have PyTorch's meaning."""
    x, c = leaf(1), leaf(2, need_grad=False)
    y, k = x * c, c * 2
    assert [v.requires_grad for v in (x, c, y, k)] == [True, False, True, False]
    assert [v.is_leaf for v in (x, c, y, k)] == [True, True, False, True]
    assert [v.grad_fn is None for v in (x, c, y, k)] == [True, True, False, True]
    assert y.grad_fn.name == "Mul2"
    with pytest.raises(AttributeError):
        y.grad_fn = None
    d = y.detach()
    assert (d.requires_grad, d.is_leaf) == (False, True) and d == y


def test_setting_requires_grad():
    """`requires_grad` can be set on leaves of real numbers only, by attribute or method."""
    x = leaf(1, need_grad=False)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad_(False).requires_grad
    x.requires_grad = True
    y = x * 2
    with pytest.raises(RuntimeError, match="leaf"):
        y.requires_grad = False
    y.requires_grad = True
    y.need_grad = False
    with pytest.raises(RuntimeError, match="floating-point"):
        nn.Variable.from_numpy_array(np.array([1, 2])).requires_grad = True


def test_a_result_that_is_made_to_require_grad_is_a_leaf():
    c = leaf(2, need_grad=False)
    k = run(c * 2)
    k.requires_grad = True
    assert k.is_leaf and k.grad_fn is None
    autodiff.backward(run(k * k))
    assert k.g.tolist() == [8]


def test_gradients_as_variables():
    """`has_grad` and `grad_variable` follow each way to set and delete a gradient."""
    x = leaf(1, 2)
    assert not x.has_grad and x.grad_variable is None
    autodiff.backward(run(F.sum(x * x)))
    assert x.has_grad and x.grad_variable.d.tolist() == [2, 4] and not x.grad_variable.requires_grad
    x.grad.zero()
    assert not x.has_grad and x.grad_variable is None
    x.g = 3
    assert x.has_grad
    x.grad = None
    assert not x.has_grad and x.g.tolist() == [0, 0]
    with pytest.raises(RuntimeError):
        x.grad = nn.NdArray((3,))
    with pytest.raises(TypeError):
        x.grad = "a"


def test_global_hooks_of_functions():
    """Global hooks of functions are called for each function of a differentiation."""
    seen = []
    x = leaf(1, 2)
    y = run(F.sum(x * x))
    nn.set_function_pre_hook("a", lambda f: seen.append(("before", f.name)))
    nn.set_function_post_hook("b", lambda f: seen.append(("after", f.name)))
    try:
        autodiff.backward(y)
    finally:
        nn.unset_function_pre_hook("a")
        nn.unset_function_post_hook("b")
    assert seen == [("before", "Sum"), ("after", "Sum"), ("before", "Mul2"), ("after", "Mul2")]
