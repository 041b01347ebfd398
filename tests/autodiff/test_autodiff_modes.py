"""Gradient modes: context managers, decorators, generators, coroutines, threads, and in-place changes."""

import asyncio
import inspect
import threading

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import autodiff
from kinnor.autodiff import enable_grad, is_grad_enabled, no_grad, set_grad_enabled


@pytest.fixture(autouse=True, params=["static", "dynamic"])
def mode(request):
    """Runs the test in both modes, and checks that gradients are enabled again after it."""
    with nn.auto_forward(request.param == "dynamic"):
        yield request.param
    assert is_grad_enabled()


def test_one_object_under_two_names():
    """`kinnor.no_grad` and `autodiff.no_grad` are the same object."""
    assert nn.no_grad is no_grad


def test_context_managers_nest():
    """`no_grad`, `enable_grad` and `set_grad_enabled` nest, and restore the outer mode."""
    assert is_grad_enabled()
    with no_grad():
        assert not is_grad_enabled()
        with enable_grad():
            assert is_grad_enabled()
            with no_grad(False):
                assert is_grad_enabled()
        assert not is_grad_enabled()
        with set_grad_enabled(True):
            assert is_grad_enabled()
        assert not is_grad_enabled()


def test_one_object_is_entered_again():
    """One `no_grad` object may be entered several times, nested or not."""
    m = no_grad()
    with m:
        with enable_grad(), m:
            with m:
                assert not is_grad_enabled()
            assert not is_grad_enabled()
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_exceptions_restore_the_mode():
    """An exception in the block restores the mode."""
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_grad_enabled()


def test_set_grad_enabled_acts_immediately():
    """`set_grad_enabled` applies when it is called, except as a decorator."""
    set_grad_enabled(False)
    assert not is_grad_enabled()
    with set_grad_enabled(True):
        assert is_grad_enabled()
    assert not is_grad_enabled()
    set_grad_enabled(True)

    @set_grad_enabled(False)
    def f():
        """True if gradients are enabled while it runs."""
        return is_grad_enabled()

    assert is_grad_enabled()
    assert f() is False


@pytest.mark.parametrize("decorator", [no_grad, no_grad(), no_grad(True)])
def test_decorators(decorator):
    """Each form of `no_grad` as a decorator disables gradients within a function, and keeps its name and text."""

    @decorator
    def f(n, *, scale=1):
        """Says what it does."""
        return (is_grad_enabled(), f(n - 1)[0] if n else None, scale)

    assert f(2, scale=3) == (False, False, 3)
    assert (f.__name__, f.__doc__) == ("f", "Says what it does.")
    assert is_grad_enabled()

    class Model:
        """A class with a decorated method."""

        @decorator
        def method(self):
            """True if gradients are enabled while it runs."""
            return is_grad_enabled()

    assert Model().method() is False
    assert decorator(lambda: is_grad_enabled())() is False


def test_enabling_decorators():
    """`enable_grad` as a decorator enables gradients within the function."""

    @enable_grad
    def f():
        """True if gradients are enabled while it runs."""
        return is_grad_enabled()

    @enable_grad()
    def g():
        """True if gradients are enabled while it runs."""
        return is_grad_enabled()

    with no_grad():
        assert f() and g()
        assert not is_grad_enabled()


def test_classes_are_no_functions():
    """The decorators refuse a class."""

    class Model:
        """A class, which the decorators refuse."""

    for decorator in (no_grad(), no_grad, enable_grad()):
        with pytest.raises(TypeError, match="function"):
            decorator(Model)


def test_generators():
    """A decorated generator has its own mode at each step, and its caller keeps another."""
    seen = []

    @no_grad
    def g(n):
        """A generator that records at each of `n` steps if gradients are enabled."""
        try:
            for i in range(n):
                seen.append(is_grad_enabled())
                try:
                    got = yield i
                    seen.append((got, is_grad_enabled()))
                except KeyError:
                    seen.append(("thrown", is_grad_enabled()))
                    yield "caught"
        finally:
            seen.append(("closed", is_grad_enabled()))
        return "end"

    assert inspect.isgeneratorfunction(g)
    it = g(3)
    assert next(it) == 0 and is_grad_enabled()
    assert it.send("a") == 1 and is_grad_enabled()
    assert it.throw(KeyError()) == "caught" and is_grad_enabled()
    it.close()
    assert seen == [False, ("a", False), False, ("thrown", False), ("closed", False)]

    def outer():
        """Delegates to `g`."""
        return (yield from g(1))

    it = outer()
    next(it)
    with pytest.raises(StopIteration) as stop:
        next(it)
    assert stop.value.value == "end"


def test_coroutines():
    """A decorated coroutine has its own mode, also after a suspension. Other tasks keep theirs."""
    seen = []

    @no_grad
    async def inner():
        """Records the mode before and after a suspension."""
        seen.append(is_grad_enabled())
        await asyncio.sleep(0)
        seen.append(is_grad_enabled())
        return "end"

    async def other():
        """Records the mode of another task."""
        for _ in range(3):
            seen.append(("other", is_grad_enabled()))
            await asyncio.sleep(0)

    async def main():
        """Runs both tasks concurrently."""
        return (await asyncio.gather(inner(), other()))[0]

    assert asyncio.run(main()) == "end"
    assert [s for s in seen if not isinstance(s, tuple)] == [False, False]
    assert all(s[1] for s in seen if isinstance(s, tuple))


def test_threads_start_enabled():
    """A new thread begins with gradients enabled, in any mode of its creator."""
    found = []
    with no_grad():
        thread = threading.Thread(target=lambda: found.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert found == [True]


def test_results_need_no_gradient(mode):
    """Results under `no_grad` are leaves without a gradient, and cannot be differentiated."""
    x = leaf(1, 2)
    with no_grad():
        h = x * 2
        y = F.sum(h)
    assert not (h.need_grad or y.requires_grad) and h.is_leaf and h.grad_fn is None
    if mode == "dynamic":
        assert h.parent is None
    else:
        y.forward()
        assert not (h.need_grad or y.need_grad)
    with pytest.raises(RuntimeError, match="do not require grad"):
        autodiff.backward(y)
    z = run(F.sum(h * x))
    autodiff.backward(z)
    assert x.g.tolist() == [2, 4]


def test_factories_are_not_affected():
    """Under `no_grad`, new leaves and parameters still need gradients."""
    with no_grad():
        assert nn.Variable((2,), need_grad=True).requires_grad
        x = leaf(1)
        assert x.requires_grad and x.get_unlinked_variable(need_grad=True).requires_grad
        with nn.parameter_scope("", {}):
            y = PF.affine(nn.Variable((1, 2)), 3)
            assert all(p.need_grad for p in nn.get_parameters().values())
            assert not y.need_grad


def test_the_mode_at_construction_counts():
    """The mode when a function is built decides, not the mode when it runs."""
    x = leaf(3)
    y = x * x
    with no_grad():
        y.forward()
    autodiff.backward(y)
    assert x.g.tolist() == [6]
    with no_grad():
        z = run(x * x)
        with enable_grad():
            w = run(x * x)
    assert (z.requires_grad, w.requires_grad) == (False, True)


def test_a_graph_without_gradients():
    """`Variable.no_grad` returns a copy of the graph whose parameters need no gradient."""
    x = leaf(1, 2)
    with nn.parameter_scope("", {}):
        y = PF.affine(F.reshape(x, (1, 2)), 1, with_bias=False)
        frozen = y.no_grad()
        assert y.need_grad
        assert all(not p.need_grad for f in [frozen.parent] for p in f.inputs[1:])


def test_leaves_are_not_changed_in_place():
    """In-place methods refuse leaves that need a gradient, except under `no_grad`."""
    x, mask = leaf(-1, 2), leaf(1, 0, need_grad=False)
    for change in (x.bool_fill_, x.masked_fill_):
        with pytest.raises(RuntimeError, match="leaf that requires grad"):
            change(mask, 5)
    assert x.d.tolist() == [-1, 2]
    with no_grad():
        y = run(x.bool_fill_(mask, 5))
    assert x.d.tolist() == y.d.tolist() == [5, 2]
    run(leaf(-1, 2, need_grad=False).bool_fill_(mask, 5))


def test_changes_in_place_make_a_new_variable_and_give_the_mask_no_gradient():
    """In-place filling passes a gradient to the elements that stay, and none to the mask."""
    x, mask = leaf(-1, 2), leaf(1, 0)
    h = x * 3
    y = run(h.bool_fill_(mask, 7))
    assert y.d.tolist() == h.d.tolist() == [7, 6]
    autodiff.backward(y, np.ones(2))
    assert (x.g.tolist(), mask.g.tolist()) == ([0, 3], [0, 0])


def test_changes_in_place_are_seen():
    """A value changed in place under `no_grad` makes a later gradient that reads it raise."""
    x, mask = leaf(1, 2), leaf(1, 0, need_grad=False)
    y = run(F.sum(x * x))
    with no_grad():
        run(x.bool_fill_(mask, 5))
    with pytest.raises(autodiff.ModifiedError):
        autodiff.backward(y)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, v: F.scatter_nd(v, np.array([[0]]), out=x),
        lambda x, v: F.bool_scatter(v, leaf(1, 0, need_grad=False), x),
        lambda x, v: x.__setitem__(0, v),
    ],
)
def test_leaves_are_not_written_to(change):
    """Functions that write to an input refuse leaves that need a gradient, except under `no_grad`."""
    x, value = leaf(-1, 2), leaf(5)
    with pytest.raises(RuntimeError, match=r"expected to change input \d in place, got a leaf that requires grad"):
        change(x, value)
    assert x.d.tolist() == [-1, 2] and x.is_leaf
    for h in (x * 1, leaf(-1, 2, need_grad=False)):
        y = change(h, value)
        y = h if y is None else y
        run(y)
        assert y.d.tolist() == [5, 2]
    with no_grad():
        y = change(x, value)
        y = x if y is None else y
        run(y)
    assert y.d.tolist() == [5, 2]


def test_results_under_no_grad_cannot_need_a_gradient(mode):
    if mode == "dynamic":
        return
    x, w = leaf(1, 2), leaf(3, 4)
    with no_grad():
        h = x * 2
        y = F.sum(h * h)
    h.rewire_on(w * x)
    y.forward()
    assert h.need_grad and not y.need_grad
    z = F.sum(h * 2)
    z.forward()
    z.backward()
    assert x.g.tolist() == [6, 8]


def test_values_under_no_grad_need_not_be_kept(mode):
    if mode == "dynamic":
        return
    x = leaf(1, 2)
    with no_grad():
        h = F.exp(x)
        y = F.sum(h * h)
    y.forward(clear_no_need_grad=True)
    with pytest.raises(nn.ClearedError):
        h.d  # noqa: B018
