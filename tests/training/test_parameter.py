"""The tree of parameters: paths, scopes, need_grad, initial values, threads."""

import threading

import numpy as np
import pytest

import kinnor as nn
from kinnor.initializer import ConstantInitializer, NormalInitializer
from kinnor.parameter import (
    ParameterError,
    get_parameter,
    get_parameter_or_create,
    pop_parameter,
    set_parameter,
)


def keys():
    """Returns the paths of all parameters."""
    return list(nn.get_parameters(grad_only=False))


def test_set_get_pop():
    """Parameters are set, found and removed by path."""
    x = nn.Variable((2, 3))
    set_parameter("a/b/c", x)
    assert get_parameter("a/b/c") is x
    assert get_parameter("/a//b/c/") is x
    assert pop_parameter("a/b/c") is x
    assert get_parameter("a/b/c") is None
    assert pop_parameter("a/b/c") is None


def test_lookups_create_no_scopes():
    """Looking up a missing parameter creates no scope."""
    assert get_parameter("x/y") is None
    assert pop_parameter("x/y") is None
    assert nn.get_current_parameter_scope() == {}


def test_scopes():
    """Scopes nest, ignore redundant slashes, and can be entered again."""
    with nn.parameter_scope("/aaa//bbb/") as scope:
        get_parameter_or_create("ccc", (2,))
        assert nn.get_current_parameter_scope() is scope
        with nn.parameter_scope("") as same:
            assert same is scope
    with nn.parameter_scope("aaa"), nn.parameter_scope("bbb"):
        get_parameter_or_create("ddd", (2,))
    with nn.parameter_scope("other"), nn.parameter_scope("x", scope=scope):
        get_parameter_or_create("eee", (2,))
    assert keys() == ["aaa/bbb/ccc", "aaa/bbb/ddd", "aaa/bbb/x/eee"]
    assert list(nn.get_parameters(path="pre", params=scope)) == ["pre/ccc", "pre/ddd", "pre/x/eee"]
    with nn.parameter_scope("aaa"):
        assert keys() == ["bbb/ccc", "bbb/ddd", "bbb/x/eee"]
        with nn.parameter_scope("bbb/x"):
            nn.clear_parameters()
    assert keys() == ["aaa/bbb/ccc", "aaa/bbb/ddd"]


def test_a_scope_ends_with_an_exception():
    """An exception in the block restores the outer parameter scope."""
    root = nn.get_current_parameter_scope()
    with pytest.raises(ZeroDivisionError), nn.parameter_scope("a"):
        raise ZeroDivisionError
    assert nn.get_current_parameter_scope() is root


def test_a_very_deep_path():
    """A path of 20,000 scopes is accepted."""
    set_parameter("a/" * 20_000 + "w", nn.Variable((1,)))
    assert len(keys()) == 1


def test_need_grad():
    """Getting a parameter again with another `need_grad` changes it in place."""
    first = get_parameter_or_create("w", (2,), need_grad=True)
    first.d, first.g = [1, 2], [3, 4]
    again = get_parameter_or_create("w", (2,), need_grad=False)
    assert not again.need_grad
    assert not get_parameter("w").need_grad
    assert list(nn.get_parameters()) == []
    again = get_parameter_or_create("w", (2,))
    assert get_parameter("w").need_grad
    assert again.d.tolist() == [1, 2]
    again.d = 5
    assert first.d.tolist() == get_parameter("w").d.tolist() == [5, 5]
    assert again.g.tolist() == [3, 4]
    frozen = get_parameter_or_create("w", (2,), as_need_grad=False)
    assert not frozen.need_grad
    assert get_parameter("w").need_grad
    assert first == again == frozen == get_parameter("w")


def test_no_grad():
    """Within `no_grad`, a parameter is returned without a gradient, but stored with one."""
    with nn.no_grad():
        assert not get_parameter_or_create("w", (2,)).need_grad
        assert not get_parameter_or_create("w", (2,), as_need_grad=True).need_grad
    assert get_parameter("w").need_grad
    assert get_parameter_or_create("w", (2,)).need_grad


def test_names_and_origin():
    """A parameter knows its name and its initializer."""
    initializer = NormalInitializer()
    used = get_parameter_or_create("a/b/w", (2,), initializer)
    assert used.name == "w"
    assert used.parent is None
    assert get_parameter("a/b/w").info.initializer is initializer


@pytest.mark.parametrize(
    ("shape", "initializer", "expected", "dtype"),
    [
        ((2,), None, [0, 0], None),
        ((2,), ConstantInitializer(3), [3, 3], "float32"),
        ((), ConstantInitializer(3), 3, "float32"),
        ((2,), lambda shape: [*shape, 7], [2, 7], "int64"),
        (None, np.array([1.5, 2]), [1.5, 2], "float64"),
        ([2], np.array([1, 2], np.int32), [1, 2], "int32"),
    ],
)
def test_initial_values(shape, initializer, expected, dtype):
    """`get_parameter_or_create` takes numbers, arrays and functions as initial values."""
    given = get_parameter_or_create("w", shape, initializer)
    assert given.d.tolist() == expected
    if dtype is not None:
        assert get_parameter("w").data.dtype == dtype


def test_initial_values_are_copied():
    """Later changes of an initial array do not change the parameter."""
    values = np.zeros(2)
    w = get_parameter_or_create("w", None, values)
    values[:] = 1
    assert w.d.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: get_parameter_or_create("w", (3,)),
            r"expected the shape \(2,\) of the existing parameter 'w', got \(3,\)",
        ),
        (lambda: get_parameter_or_create("new"), "expected a shape or an array for the new parameter 'new', got none"),
        (
            lambda: get_parameter_or_create("new", (2,), np.zeros(3)),
            r"initial values of shape \(2,\) for 'new', got shape \(3,\)",
        ),
        (lambda: get_parameter_or_create("new", (2,), lambda shape: 1.0), r"initial values of shape \(2,\)"),
        (
            lambda: get_parameter_or_create("new", (2,), 3),
            "expected `initializer` of 'new' to be a function or an array, got 3",
        ),
        (lambda: get_parameter_or_create("", (2,)), "expected the name of a parameter, got ''"),
        (lambda: get_parameter_or_create("s", (2,)), "expected a parameter at 's', got a scope"),
        (lambda: get_parameter_or_create("w/x", (2,)), "expected a scope at 'w' of 'w/x', got a parameter"),
        (lambda: set_parameter("s", nn.Variable((1,))), "set_parameter: expected a parameter at 's', got a scope"),
        (lambda: get_parameter("s"), "get_parameter: expected a parameter at 's', got a scope"),
        (
            lambda: nn.parameter_scope("w").__enter__(),
            "parameter_scope: expected a scope at 'w' of 'w', got a parameter",
        ),
        (lambda: nn.parameter_scope("x", scope=3).__enter__(), "expected `scope` to be a dict, got 3"),
    ],
)
def test_refused_calls_change_nothing(call, message):
    get_parameter_or_create("w", (2,))
    get_parameter_or_create("s/x", (2,))
    before = keys()
    with pytest.raises(ParameterError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, KeyError)
    assert not str(caught.value).startswith(("'", '"'))
    assert keys() == before


def test_wrong_types():
    """Arguments of wrong types are refused, and nothing is created."""
    for call in (
        lambda: set_parameter("z", 3),
        lambda: get_parameter(3),
        lambda: get_parameter_or_create(None, (1,)),
        lambda: nn.parameter_scope(3).__enter__(),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()
    assert keys() == []


def test_the_tree_is_shared_and_scopes_are_thread_local():
    barrier = threading.Barrier(4)
    made = []

    def work():
        """Creates parameters in scopes, together with other threads."""
        barrier.wait()
        for i in range(50):
            with nn.parameter_scope(f"s{i}"):
                made.append((i, get_parameter_or_create("w", (2,), NormalInitializer())))

    threads = [threading.Thread(target=work) for _ in range(4)]
    with nn.parameter_scope("mine"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert keys() == []
    assert len(keys()) == 50
    assert all(nn.get_parameters()[f"s{i}/w"] == w for i, w in made)
