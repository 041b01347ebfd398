"""`functions.forget`: Chainer's semantics, and extensions."""

import numpy as np
import pytest
from support import UnaryFunction, random_leaf, same

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import _core, autodiff

MODES = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
"""Runs a test once with a static graph and once eagerly."""


@pytest.fixture(autouse=True)
def alone():
    """Runs the test in an empty parameter scope."""
    with nn.parameter_scope("", {}):
        yield


def call_directly(func, *xs, **_):
    """Calls `func` without `forget`, for comparison."""
    return func(*xs)


def gradients(build, leaves, dynamic, seed=3):
    """Seeds the random numbers, builds and runs a graph, and returns the gradients of its leaves."""
    nn.seed(seed)
    for v in leaves:
        v.grad.zero()
    with nn.auto_forward(dynamic):
        loss = build()
        if not dynamic:
            loss.forward(clear_no_need_grad=True)
        loss.backward(clear_buffer=True)
    return [v.g.copy() for v in leaves]


def assert_agreement(func, leaves, dynamic):
    """Asserts that gradients with and without `forget` are equal bit by bit."""
    forgetting = gradients(lambda: F.sum(F.forget(func, *leaves)), leaves, dynamic)
    same(forgetting, gradients(lambda: F.sum(func(*leaves)), leaves, dynamic))


@MODES
def test_gradients_are_the_same(dynamic):
    """A segment under `forget` has the values and gradients of a plain call."""
    assert_agreement(lambda x: F.tanh(F.sin(x) * x), [random_leaf(3, 4)], dynamic)
    assert_agreement(lambda x, y: F.exp(x) * F.sin(y) + y, [random_leaf(3, 4), random_leaf(3, 4, seed=1)], dynamic)


@MODES
def test_results_have_the_form_that_func_returns(dynamic):
    x = random_leaf(2)
    with nn.auto_forward(dynamic):
        one = F.forget(lambda x: F.sin(x), x)
        bare = F.forget(lambda x: (F.sin(x),), x)
        two = F.forget(lambda x: (F.sin(x), F.cos(x)), x)
        assert isinstance(one, nn.Variable)
        assert isinstance(bare, nn.Variable)
        assert isinstance(two, tuple)
        assert F.forget(lambda x: (), x) == ()
        if not dynamic:
            nn.forward_all([one, bare, *two])
    assert np.allclose(one.d, np.sin(x.d))
    assert np.allclose(two[1].d, np.cos(x.d))


@MODES
def test_several_outputs_and_unused_ones(dynamic):
    """A segment with several outputs gives right gradients if some of them are not used."""
    x = random_leaf(4)
    func = lambda x: (F.sin(x), F.exp(x), F.cos(x))  # noqa: E731
    got = gradients(lambda: F.sum(F.forget(func, x)[1]), [x], dynamic)
    same(got, gradients(lambda: F.sum(func(x)[1]), [x], dynamic))
    got = gradients(lambda: F.sum(F.forget(func, x)[0] * F.forget(func, x)[2]), [x], dynamic)
    same(got, gradients(lambda: F.sum(func(x)[0] * func(x)[2]), [x], dynamic))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("xs", [(), (1,)])
def test_func_must_be_callable(dynamic, xs):
    """`forget` refuses a first argument that cannot be called."""
    with nn.auto_forward(dynamic), pytest.raises(TypeError, match="func must be callable"):
        F.forget(1, *xs)


@MODES
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (1, "A tuple of Variables or a Variable are expected, but <class 'int'> is returned"),
        ([1], "<class 'list'> is returned"),
        (None, "<class 'NoneType'> is returned"),
        ((1,), "1st element of a returned tuple is not Variable, but is <class 'int'>"),
        ((0, 1), "1st element"),
    ],
)
def test_func_must_return_variables(dynamic, result, said):
    with nn.auto_forward(dynamic), pytest.raises(RuntimeError, match=said):
        F.forget(lambda x: result, random_leaf(2))
    assert _core.recorded_random() == []
    assert_agreement(F.sin, [random_leaf(2)], dynamic)


@pytest.mark.parametrize(
    ("n", "name"),
    [
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (111, "111th"),
        (122, "122nd"),
    ],
)
def test_ordinals(n, name):
    """An error about an output names its place as an ordinal, such as 122nd."""
    x = random_leaf(1)
    with pytest.raises(RuntimeError, match=f"forget: {name} element"):
        F.forget(lambda x: (x,) * (n - 1) + ("no",), x)


def test_func_is_called_once_forward_and_once_backward():
    calls = []

    def func(x):
        """Records if the call is a recomputation."""
        calls.append(nn.config.in_recomputing)
        return F.sin(x)

    x = random_leaf(3)
    with nn.auto_forward():
        y = F.sum(F.forget(func, x))
    assert calls == [False]
    y.backward()
    assert calls == [False, True]
    assert not nn.config.in_recomputing
    with nn.auto_forward(), nn.no_grad():
        F.forget(func, x)
    assert calls == [False, True, False]
    calls.clear()
    y = F.sum(F.forget(func, x))
    y.forward()
    y.backward()
    assert calls == [False]


def test_only_inputs_are_kept():
    """An eager segment keeps its inputs and output in memory, and none of its inner values."""
    n = 1 << 18
    x = random_leaf(n)

    def func(x):
        """Applies `tanh` ten times."""
        for _ in range(10):
            x = F.tanh(x)
        return x

    with nn.auto_forward():
        before = nn.memory_stats()["live"]
        kept = func(x)
        without = nn.memory_stats()["live"] - before
        del kept
        assert nn.memory_stats()["live"] == before
        y = F.forget(func, x)
        held = nn.memory_stats()["live"] - before
        assert without == 10 * 4 * n
        assert held == 4 * n
        nn.reset_peak_memory()
        segments = x
        for _ in range(5):
            segments = F.forget(func, segments)
        del y
        loss = F.sum(segments)
        nn.reset_peak_memory()
        before = nn.memory_stats()["live"]
        loss.backward(clear_buffer=True)
        assert nn.memory_stats()["peak"] - before <= (10 + 5) * 4 * n


@MODES
def test_arrays_are_taken_and_parameters_get_their_gradients(dynamic):
    """A segment accepts NumPy and library arrays, and its parameters get their gradients."""
    values = np.random.RandomState(1).rand(4, 3).astype(np.float32)

    def func(x):
        """Applies a layer with parameters."""
        return F.tanh(PF.affine(x, 2))

    func(nn.Variable((4, 3)))
    parameters = list(nn.get_parameters().values())
    got = gradients(lambda: F.sum(F.forget(func, values)), parameters, dynamic)
    x = nn.Variable.from_numpy_array(values)
    same(got, gradients(lambda: F.sum(func(x)), parameters, dynamic))
    array = nn.NdArray.from_numpy_array(values)
    same(got, gradients(lambda: F.sum(F.forget(func, array)), parameters, dynamic))
    assert np.abs(got[0]).max() > 0


@MODES
def test_parameters_are_found_in_the_scope_of_the_call(dynamic):
    x = random_leaf(4, 3)
    with nn.auto_forward(dynamic):
        with nn.parameter_scope("a"):
            y = F.forget(lambda x: PF.affine(x, 2), x)
        loss = F.sum(y)
        loss.forward()
        loss.backward()
    assert set(nn.get_parameters()) == {"a/affine/W", "a/affine/b"}
    assert np.abs(nn.get_parameters()["a/affine/W"].g).max() > 0


@MODES
def test_dropout_draws_the_same_mask_again(dynamic):
    """A segment is recomputed with the random numbers of its first run."""
    x = random_leaf(50, 50)
    func = lambda x: F.dropout(F.dropout(F.sin(x), 0.5) * x, 0.3)  # noqa: E731
    assert_agreement(func, [x], dynamic)
    nn.seed(1)
    with nn.auto_forward(dynamic):
        F.sum(F.forget(func, x)).backward() if dynamic else None
        after = F.rand(shape=(4,))
        after.forward()
    nn.seed(1)
    with nn.auto_forward(dynamic):
        func(x) if dynamic else None
        expected = F.rand(shape=(4,))
        expected.forward()
    assert (after.d == expected.d).all()


def test_random_numbers_are_new_on_request():
    """With `preserve_rng_state=False`, the recomputation draws new random numbers."""
    x = random_leaf(200)
    with nn.auto_forward():
        y = F.forget(lambda x: F.dropout(x, 0.5), x, preserve_rng_state=False)
        F.sum(y).backward()
    assert ((y.d != 0) != (x.g != 0)).any()


@MODES
def test_batch_normalization_updates_its_statistics_once(dynamic):
    """Recomputing a segment does not update running statistics again."""
    x = random_leaf(8, 3)
    results = []
    for call in (F.forget, call_directly):
        nn.clear_parameters()
        parameters = [x]
        got = gradients(lambda: F.sum(F.tanh(call(PF.batch_normalization, x))), parameters, dynamic)  # noqa: B023
        values = nn.get_parameters(grad_only=False)
        results.append(
            [*got, *(v.d.copy() for v in values.values()), *(v.g.copy() for v in nn.get_parameters().values())]
        )
    same(*results)
    assert np.abs(results[0][3]).max() > 0


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (lambda x: (F.sin(x), x), "expected 1 outputs as the first time, got 2"),
        (lambda x: F.sum(x), r"output 0 of shape \(3,\) as the first time, got \(\)"),
    ],
)
def test_a_recomputation_with_another_result_is_refused(second, said):
    runs = [F.sin, second]
    x = random_leaf(3)
    with nn.auto_forward():
        y = F.sum(F.forget(lambda x: runs.pop(0)(x), x))
        with pytest.raises(autodiff.RecomputeError, match=said):
            y.backward()
    assert autodiff.is_grad_enabled()
    assert not nn.config.in_recomputing
    assert not nn.get_auto_forward()
    assert_agreement(F.sin, [x], True)


def test_values_are_compared_if_asked():
    """`determinism_check="values"` fails if the recomputed output differs."""
    x = random_leaf(3)
    for check, fails in (("default", False), ("none", False), ("values", True)):
        runs = [F.sin, F.cos]
        with nn.auto_forward():
            y = F.sum(F.forget(lambda x: runs.pop(0)(x), x, determinism_check=check))  # noqa: B023
            if fails:
                with pytest.raises(autodiff.RecomputeError, match="values"):
                    y.backward()
            else:
                y.backward()
    with pytest.raises(ValueError, match="determinism_check"):
        F.forget(F.sin, x, determinism_check="yes")


@MODES
def test_an_error_in_func_is_not_wrapped(dynamic):
    x = random_leaf(3)

    def fails(x):
        """A segment that raises."""
        raise KeyError("mine")

    with nn.auto_forward(dynamic), pytest.raises(KeyError, match="mine"):
        F.forget(fails, x)
    assert not nn.get_global_recompute()
    runs = [F.sin, fails]
    if dynamic:
        with nn.auto_forward():
            y = F.sum(F.forget(lambda x: runs.pop(0)(x), x))
            with pytest.raises(KeyError, match="mine"):
                y.backward()
    assert_agreement(F.sin, [x], dynamic)


def test_a_retained_graph_runs_again_each_time():
    calls = []

    def func(x):
        """A segment that counts its calls."""
        calls.append(1)
        return F.sin(x)

    x = random_leaf(3)
    with nn.auto_forward():
        y = F.sum(F.forget(func, x))
        autodiff.backward(y, retain_graph=True)
        autodiff.backward(y, retain_graph=True)
    assert len(calls) == 3
    assert np.allclose(x.g, 2 * np.cos(x.d))


def test_the_segment_is_freed_with_its_graph():
    x = random_leaf(3)
    with nn.auto_forward():
        y = F.sum(F.forget(F.sin, x))
        autodiff.backward(y)
        with pytest.raises(autodiff.GraphFreedError):
            autodiff.backward(y)


def test_an_error_in_backward_does_not_change_random_numbers():
    def draws(fails):
        """Returns numbers drawn after a backward run, which may fail."""
        calls = []

        def func(x):
            """A segment with dropout that may fail when it is recomputed."""
            calls.append(1)
            y = F.dropout(x)
            return (y, y) if fails and len(calls) == 2 else y

        nn.seed(5)
        with nn.auto_forward():
            y = F.sum(F.forget(func, random_leaf(100)))
            if fails:
                with pytest.raises(autodiff.RecomputeError):
                    autodiff.backward(y)
            else:
                autodiff.backward(y)
            return F.rand(shape=(4,)).d.tolist()

    assert draws(True) == draws(False)


def test_a_changed_value_is_refused():
    """Differentiation fails if a captured value was changed after the first run."""
    w, x = random_leaf(3), random_leaf(3, seed=1)
    with nn.auto_forward():
        y = F.sum(F.forget(lambda x: x * w, x))
        w.d = 1
        with pytest.raises(autodiff.ModifiedError):
            autodiff.backward(y)


def test_static_flags_follow_the_segment():
    """In a static graph `forget` marks the inner values for recomputation, not inputs and outputs."""
    x = random_leaf(3)
    inside = []

    def func(x):
        """A segment that records its inner variables."""
        inside.append(F.sin(x))
        inside.append(F.cos(inside[0]))
        return inside[1]

    y = F.forget(func, x)
    assert [v.recompute for v in inside] == [True, False]
    assert not x.recompute
    assert not F.sin(y).recompute
    inside.clear()
    z = F.forget(lambda x: F.exp(F.forget(func, x)), x)
    assert [v.recompute for v in inside] == [True, True]
    assert not z.recompute


def test_running_it_forward_again():
    """A segment that was built eagerly can run forward again with new values."""
    x = random_leaf(3)
    with nn.auto_forward():
        y = F.sum(F.forget(lambda x: F.sin(x), x))
    x.d = [1, 2, 3]
    y.forward()
    y.backward()
    assert np.allclose(y.d, np.sin([1, 2, 3]).sum())
    assert np.allclose(x.g, np.cos([1, 2, 3]))


def inner(a, b):
    """A segment that ignores its second input."""
    return F.sin(a)


SEGMENTS = {
    "unused": lambda u, v: F.forget(inner, u, v),
    "used elsewhere": lambda u, v: F.forget(inner, u, v) + v,
    "computed": lambda u, v: F.forget(inner, u, F.tanh(v)),
    "three deep": lambda u, v: F.forget(lambda a, b: F.forget(inner, a, b) * 2.0, u, v),
    "both unused": lambda u, v: F.forget(lambda a, b: a * 0.0 + 1.0, u, v),
    "returned as it is": lambda u, v: F.forget(lambda a, b: (a, F.sin(b)), u, v)[1],
    "zeros": lambda u, v: F.forget(lambda a, b: nn.Variable(a.shape) + F.sin(a), u, v),
    "nothing written": lambda u, v: F.forget(lambda a, b: (F.sin(a), nn.Variable(a.shape)), u, v)[0],
}
"""Functions of two arrays, by name. Under `F.forget`, each must have the gradients of a direct call."""


@MODES
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", SEGMENTS)
def test_a_nested_segment_with_an_unused_input(name, computed, dynamic):
    """A segment that calls `F.forget` within has the gradients of direct calls, although it does not use an input."""
    x, y = random_leaf(2, 3), random_leaf(2, 3, seed=1)
    segment = SEGMENTS[name]

    def build(run):
        """Returns a loss of the segment, run by `run`."""
        a, b = (x * 1.0, y * 1.0) if computed else (x, y)
        return F.sum(run(segment, a, b) * 3.0)

    found = gradients(lambda: build(F.forget), [x, y], dynamic)
    original = F.forget
    try:
        F.forget = call_directly
        expected = gradients(lambda: build(call_directly), [x, y], dynamic)
    finally:
        F.forget = original
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_segment_with_a_users_function_that_leaves_a_gradient_alone():
    class Twice(UnaryFunction):
        """A user's function that leaves the gradient of an input unset."""

        reads_input = True

        def forward_impl(self, inputs, outputs):
            """Computes the output."""
            outputs[0].d = inputs[0].d * 2

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
            if propagate_down[0]:
                inputs[0].g = outputs[0].g * 2 + (inputs[0].g if accum[0] else 0)

    x, y = random_leaf(2, 3), random_leaf(2, 3, seed=1)
    gx, gy = gradients(lambda: F.sum(F.forget(lambda u, v: Twice()(u, v), x, y)), [x, y], True)
    assert np.all(gx == 2)
    assert np.all(gy == 0)
