"""Reference cycles are collected: hooks that refer to their variable, and gradients with graphs."""

import gc
import weakref

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff


@pytest.fixture(autouse=True)
def at_once():
    """Runs the test in eager mode."""
    with nn.auto_forward():
        gc.collect()
        yield


def survivors_with_hook(make):
    """Makes a variable with a hook that refers to it, drops it, and counts the variables that survive collection."""
    before = _core.live_variables()
    x = make()
    x.register_hook(lambda g, x=x: x * g)
    x.register_hook(lambda g: None)
    reference = weakref.ref(x)
    del x
    gc.collect()
    assert reference() is None
    return _core.live_variables() - before


def test_a_leaf_with_a_hook_that_refers_to_it():
    """A leaf whose hook refers to it is collected."""
    assert survivors_with_hook(lambda: leaf(1, 2)) == 0


def test_a_result_with_a_hook_that_refers_to_it():
    """A result whose hook refers to it is collected."""
    assert survivors_with_hook(lambda: leaf(1, 2) * 3) == 0


def test_a_hook_after_accumulation():
    """A leaf whose hook after accumulation refers to it is collected."""
    before = _core.live_variables()
    x = leaf(1, 2)
    x.register_post_accumulate_grad_hook(lambda _, x=x: x.grad.zero())
    autodiff.backward(F.sum(x * x))
    del x
    gc.collect()
    assert _core.live_variables() == before


def test_two_variables_with_hooks_that_refer_to_each_other():
    """Two variables whose hooks refer to each other are collected."""
    before = _core.live_variables()
    x, y = leaf(1, 2), leaf(3, 4)
    x.register_hook(lambda g, y=y: g * y)
    y.register_hook(lambda g, x=x: g * x)
    del x, y
    gc.collect()
    assert _core.live_variables() == before


def test_a_hook_works_as_long_as_the_graph_is_held():
    """The caller dropped the variable, but the graph still holds it."""
    x, calls = leaf(1, 2), []
    h = x * 3
    h.register_hook(lambda g, h=h: calls.append(h.shape))
    y = F.sum(h)
    held = weakref.ref(h)
    del h
    gc.collect()
    assert held() is not None
    y.backward()
    autodiff.backward(y)
    assert calls == [(2,), (2,)]
    del y
    gc.collect()
    assert held() is None


def test_a_second_handle_keeps_the_hook():
    """A hook on a variable is still called after the variable is dropped but an unlinked copy lives."""
    x, calls = leaf(1, 2), []
    copy = x.get_unlinked_variable()
    x.register_hook(lambda g, x=x: calls.append(x.shape))
    del x
    gc.collect()
    F.sum(copy * copy).backward()
    assert calls == [(2,)]


def test_subclasses_take_part():
    """A variable of a derived class that refers to itself, also through a hook, is collected."""

    class Mine(nn.Variable):
        """A subclass without attributes of its own."""

    v = Mine((2,), need_grad=True)
    v.me = v
    v.register_hook(lambda g, v=v: v.d)
    reference = weakref.ref(v)
    del v
    gc.collect()
    assert reference() is None


def test_many_variables_do_not_slow_the_collector():
    x = leaf(1, 2)
    results = [x * 2 for _ in range(100)]
    assert not any(map(gc.is_tracked, results))
    results[0].register_hook(print)
    assert gc.is_tracked(results[0])


def test_graphs_of_gradients_are_freed_with_the_gradient():
    before = _core.live_variables()
    x = nn.Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
    y = F.sum(F.exp(x))
    autodiff.backward(y, create_graph=True)
    x.grad = None
    del x, y
    assert _core.live_variables() == before


def test_a_variable_referenced_by_its_info():
    """An `info` object that refers to its variable stays while it is referenced, and still leads to the variable."""

    class Info:
        """An object that can be weakly referenced."""

    for make in (lambda: leaf(1, 2), lambda: leaf(1, 2) * 3, nn.Variable):
        x, info = make(), Info()
        x.info = info
        info.variable = x
        gone = weakref.ref(info)
        del x
        gc.collect()
        assert gone() is info
        assert info.variable.info is info
        del info
        gc.collect()
        assert gone() is None
