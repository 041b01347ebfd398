"""`autodiff.backward`: arguments, errors, and which values are kept or freed."""

import gc

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff

pytestmark = pytest.mark.usefixtures("mode")


def test_gradients_of_leaves_add_up():
    """Repeated `autodiff.backward` adds to the gradients of leaves."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = run(F.sum(x * w * x))
    assert autodiff.backward(y, retain_graph=True) is None
    assert (x.g.tolist(), w.g.tolist()) == ([6, 16], [1, 4])
    autodiff.backward(y)
    assert (x.g.tolist(), w.g.tolist()) == ([12, 32], [2, 8])


def test_only_leaves_get_gradients():
    """`autodiff.backward` writes no gradient to an intermediate variable."""
    x = leaf(1, 2)
    h = x * 3
    autodiff.backward(run(F.sum(h * h)))
    assert x.has_grad and not h.has_grad
    assert h.g.tolist() == [0, 0]


def test_several_variables_with_gradients_to_start_from():
    """`backward` takes several roots, with a gradient or None for each, and adds their contributions."""
    x = leaf(1, 2)
    y, z = run(x * 2, F.sum(x * x))
    autodiff.backward([y, z], [np.array([10, 100]), None])
    assert x.g.tolist() == [22, 204]


@pytest.mark.parametrize("given", [leaf(1, 2), nn.NdArray.from_numpy_array(np.array([1.0, 2])), np.array([1, 2])])
def test_accepted_types_of_gradients(given):
    """The initial gradient may be a variable, an `NdArray` or a NumPy array."""
    x = leaf(1, 1)
    y = run(x * 5)
    autodiff.backward(y, given)
    assert x.g.tolist() == [5, 10]


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64])
def test_gradients_to_start_from_are_cast(dtype):
    """An initial gradient of another element type is converted to float32."""
    x = leaf(1, 1)
    autodiff.backward(run(x * 5), np.array([1, 2], dtype))
    assert x.g.dtype == np.float32 and x.g.tolist() == [5, 10]


def test_a_number_fills():
    """A number as initial gradient stands for an array filled with it."""
    x = leaf(1, 1)
    autodiff.backward(run(x * 5), 2)
    assert x.g.tolist() == [10, 10]


def test_an_iterator_of_variables():
    """Any iterable of variables is accepted as the roots of `backward`."""
    x = leaf(1)
    y, z = run(x * 2, x * 3)
    autodiff.backward(v for v in (y, z))
    assert x.g.tolist() == [5]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_needs_no_gradient(shape):
    """`backward` of a one-element output uses 1 as the initial gradient."""
    x = nn.Variable.from_numpy_array(np.full(shape, 3.0, np.float32), need_grad=True)
    autodiff.backward(run(x * x))
    np.testing.assert_array_equal(x.g, np.full(shape, 6.0))


def test_several_elements_need_a_gradient():
    """`backward` of several elements without an initial gradient is refused."""
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        autodiff.backward(run(x * 2))


def test_roots_without_grad_are_skipped():
    """Roots that require no grad are ignored, but at least one root must require it."""
    x, c = leaf(1), leaf(1, 2, need_grad=False)
    y, z = run(x * 2, c * 2)
    autodiff.backward([y, z])
    assert x.g.tolist() == [2]
    with pytest.raises(RuntimeError, match="do not require grad"):
        autodiff.backward([z, c])


def test_a_root_that_is_a_leaf():
    """`backward` from a leaf adds the initial gradient to the leaf's gradient."""
    x = leaf(7)
    autodiff.backward(x)
    autodiff.backward(x, 3)
    assert x.g.tolist() == [4]
    g = np.array([2.0], np.float32)
    seed = nn.Variable.from_numpy_array(g)
    x.grad = None
    autodiff.backward(x, seed)
    autodiff.backward(x, seed)
    assert (x.g.tolist(), seed.d.tolist()) == ([4], [2])


def test_a_root_given_twice_counts_twice():
    x = leaf(7)
    y = run(x * x)
    autodiff.backward([y, y, y], [None, 2, 4])
    assert x.g.tolist() == [98]


def test_a_root_that_feeds_another():
    """If one root is computed from another, the leaf gets the sum of both gradients."""
    x = leaf(2)
    y = x * x
    z = run(y * y)
    seed = leaf(1, need_grad=False)
    autodiff.backward([y, z], [seed, None])
    assert (x.g.tolist(), seed.d.tolist()) == ([36], [1])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (lambda x, y: ([y, 3],), TypeError, "Variables, got int"),
        (lambda x, y: ("yx",), TypeError, "Variables, got str"),
        (lambda x, y: ([],), RuntimeError, "got none"),
        (lambda x, y: ([y, y], [None]), RuntimeError, "got 2 variables and 1 gradients"),
        (lambda x, y: (y, [None, None]), RuntimeError, "got 1 variables and 2 gradients"),
        (lambda x, y: (y, "a"), TypeError, "gradient 0, got str"),
        (lambda x, y: (y, np.array([1j])), TypeError, "complex"),
        (lambda x, y: ([x, y], [np.ones((2, 1)), None]), RuntimeError, r"shape \(2,\) at index 0, got \(2, 1\)"),
        (lambda x, y: (y, None, None, False, []), RuntimeError, "inputs cannot be empty"),
        (lambda x, y: (y, None, None, False, [x, None]), TypeError, "inputs to be Variables"),
        (lambda x, y: (y, None, None, False, [y]), RuntimeError, "leaves"),
        (lambda x, y: (y, None, None, False, [leaf(1, need_grad=False)]), RuntimeError, "require grad"),
    ],
)
def test_refused_arguments_leave_no_trace(arguments, error, words):
    x = leaf(1, 2)
    y = run(F.sum(x * x))
    with pytest.raises(error, match=words):
        autodiff.backward(*arguments(x, y))
    assert not x.has_grad
    autodiff.backward(y)
    assert x.g.tolist() == [2, 4]


def test_inputs_choose_leaves():
    """With `inputs`, only these leaves get gradients."""
    x, w, unused = leaf(2), leaf(3), leaf(4)
    y = run(x * w)
    autodiff.backward(y, inputs=[x, unused, x])
    assert (x.g.tolist(), w.has_grad, unused.has_grad) == ([3], False, False)


def test_only_the_way_to_inputs_is_freed():
    """With `inputs`, only the functions between the root and these inputs are freed."""
    x, w = leaf(2), leaf(3)
    h, k = x * x, w * w
    y = run(h * k)
    autodiff.backward(y, inputs=x)
    autodiff.backward(run(k * 1) if nn.get_auto_forward() else k)
    assert (x.g.tolist(), w.g.tolist()) == ([36], [6])
    with pytest.raises(autodiff.GraphFreedError):
        autodiff.backward(h)


@pytest.mark.parametrize("build", [lambda x: F.sum(x * 3), lambda x: F.sum(x + 3), F.sum])
def test_a_second_pass_needs_the_first_to_retain(build):
    x = leaf(1, 2)
    y = run(build(x))
    autodiff.backward(y, retain_graph=True)
    autodiff.backward(y)
    once = x.g.copy()
    for call in (lambda: autodiff.backward(y), lambda: autodiff.grad(y, x), lambda: y.backward()):
        with pytest.raises(autodiff.GraphFreedError, match="retain_graph=True"):
            call()
    np.testing.assert_array_equal(x.g, once)
    y.name = "loss"
    with pytest.raises(autodiff.GraphFreedError, match=r"through sum, which computes variable 'loss' of shape \(\)"):
        autodiff.backward(y)
    y.forward()
    autodiff.backward(y)
    np.testing.assert_array_equal(x.g, once * 1.5)


def test_forward_must_come_first(mode):
    """Differentiating a static graph that has not run is refused."""
    if mode == "dynamic":
        return
    x = leaf(1)
    y = x * x
    for call in (
        lambda: autodiff.backward(y),
        lambda: autodiff.grad(y, x),
        lambda: autodiff.grad(y, x, create_graph=True),
    ):
        with pytest.raises(RuntimeError, match=r"call forward\(\) first"):
            call()
    run(y)
    autodiff.backward(y)
    x.reset_shape((2,), True)
    with pytest.raises(RuntimeError, match=r"call forward\(\) first"):
        autodiff.backward(y, np.ones(1))


def test_held_values_stay_readable_in_dynamic_mode(mode):
    """After `backward`, values held by the program are readable in dynamic mode, cleared in static mode."""
    x = leaf(1, 2)
    h = F.exp(x)
    y = run(F.sum(h * h))
    autodiff.backward(y)
    assert y.d == pytest.approx(np.exp([2, 4]).sum())
    if mode == "dynamic":
        np.testing.assert_allclose(h.d, np.exp([1, 2]), rtol=1e-6)
    else:
        with pytest.raises(nn.ClearedError):
            h.d  # noqa: B018


def test_values_that_another_loss_needs_stay():
    """With `retain_graph`, a value that two losses share survives the first differentiation."""
    x = leaf(1, 2)
    h = F.exp(x)
    first, second = run(F.sum(h * h), F.sum(h * 3))
    autodiff.backward(first, retain_graph=True)
    autodiff.backward(second)
    np.testing.assert_allclose(x.g, 2 * np.exp([2, 4]) + 3 * np.exp([1, 2]), rtol=1e-5)


def test_persistent_values_stay():
    """Differentiation without `retain_graph` does not clear persistent values."""
    x = leaf(1, 2)
    h = F.exp(x)
    h.persistent = True
    autodiff.backward(run(F.sum(h * h)))
    np.testing.assert_allclose(h.d, np.exp([1, 2]), rtol=1e-6)


def test_gradients_add_up_in_the_type_that_they_have():
    """`backward` adds in the type of an existing gradient array, such as float64."""
    x = leaf(1, 2)
    x.grad = nn.NdArray.from_numpy_array(np.array([1e-9, 1.0]))
    held = x.grad
    autodiff.backward(run(F.sum(x * 2)))
    assert x.g.dtype == np.float64
    np.testing.assert_array_equal(x.g, [2 + 1e-9, 3])
    np.testing.assert_array_equal(held.data, x.g)


def test_a_view_of_the_gradient_sees_later_sums():
    x = leaf(1, 2)
    view = x.g
    view[...] = 1
    autodiff.backward(run(F.sum(x * 2)))
    assert view.tolist() == [3, 3]


def test_backward_with_a_graph():
    """With `create_graph`, gradients can be differentiated again."""
    x = leaf(1, 2)
    y = run(F.sum(x * x * x))
    autodiff.backward(y, create_graph=True)
    g = x.grad_variable
    assert (x.g.tolist(), g.d.tolist(), g.requires_grad) == ([3, 12], [3, 12], True)
    (second,) = autodiff.grad(g, x, np.ones(2), retain_graph=True)
    assert second.d.tolist() == [6, 12]
    autodiff.backward(y, create_graph=True)
    assert x.grad_variable is not None and x.g.tolist() == [6, 24]
    (second,) = autodiff.grad(x.grad_variable, x, np.ones(2))
    assert second.d.tolist() == [12, 24]
    assert g.d.tolist() == [3, 12]
    x.grad = None
    assert x.grad_variable is None and not x.has_grad and x.g.tolist() == [0, 0]


def test_two_leaves_with_one_gradient_do_not_share_it():
    """Two leaves whose gradients are equal get arrays of their own."""
    x, w = leaf(1, 2), leaf(3, 4)
    autodiff.backward(run(F.sum(x + w)), create_graph=True)
    autodiff.backward(run(F.sum(x * 10)))
    assert (x.g.tolist(), w.g.tolist()) == ([11, 11], [1, 1])


def test_cycles_of_create_graph_are_collected():
    """Graphs held only by the gradients of their own leaves are freed with those gradients."""
    x = leaf(1, 2)
    gc.collect()
    before = _core.live_variables()
    for _ in range(3):
        y = run(F.sum(F.exp(x) * x))
        autodiff.backward(y, create_graph=True)
        del y
    assert _core.live_variables() > before
    x.grad = None
    assert _core.live_variables() == before
    autodiff.backward(run(F.sum(x * x)), create_graph=True)
    x.grad = nn.NdArray((2,))
    assert _core.live_variables() == before


def test_changed_values_raise():
    """A value that was changed after forward raises `ModifiedError` if a gradient reads it."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = run(F.sum(x * w))
    w.d = 5
    for options in ({}, {"create_graph": True}):
        with pytest.raises(autodiff.ModifiedError, match=r"mul2.*input 1"):
            autodiff.backward(y, **options)
    assert not x.has_grad
    y = run(F.sum(x + w))
    w.d = 6
    autodiff.backward(y)
    assert x.g.tolist() == [1, 1]


def test_an_unlinked_copy_ends_differentiation():
    """No gradient flows from an unlinked copy to the variable that it copies."""
    x = leaf(1, 2)
    h = x * x
    copy = h.get_unlinked_variable(need_grad=True)
    y = F.sum(h * 3)
    z = F.sum(copy * copy)
    run(y, z)
    autodiff.backward([y, z], retain_graph=True)
    assert x.g.tolist() == [6, 12]
    assert copy.g.tolist() == [2, 8]
    gh, gcopy = autodiff.grad([y, z], [h, copy])
    assert (gh.d.tolist(), gcopy.d.tolist()) == ([3, 3], [2, 8])


def test_handles_on_a_parameter_are_one_leaf():
    x = leaf(1, 2)
    y = F.sum(x.get_unlinked_variable() * x.get_unlinked_variable())
    (g,) = autodiff.grad(run(y), x)
    assert g.d.tolist() == [2, 4]


def test_need_grad_false_ends_differentiation():
    """No gradient flows through an intermediate variable with `need_grad=False`."""
    x = leaf(1, 2)
    h = x * x
    h.need_grad = False
    y = run(F.sum(h * x))
    autodiff.backward(y)
    assert x.g.tolist() == [1, 4]


def test_recomputed_values():
    """Gradients through values that are marked for recomputation are right."""
    x = leaf(1, 2)
    with nn.recompute():
        h = F.exp(x * 0.5)
    y = run(F.sum(h * h))
    autodiff.backward(y, retain_graph=True)
    autodiff.backward(y, retain_graph=True)
    np.testing.assert_allclose(x.g, 2 * np.exp([1, 2]), rtol=1e-6)
    (g,) = autodiff.grad(y, x, create_graph=True)
    np.testing.assert_allclose(g.d, np.exp([1, 2]), rtol=1e-6)


def test_deep_graphs():
    """A graph of 20,000 functions is differentiated without recursion."""
    x = leaf(1)
    y = x
    for _ in range(20000):
        y = y + x
    autodiff.backward(run(y), retain_graph=True)
    assert x.g.tolist() == [20001]
    (g,) = autodiff.grad(y, x, create_graph=True)
    assert g.d.tolist() == [20001]
