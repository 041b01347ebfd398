"""Solvers: update steps compared with plain formulas, hooks, gradients, and errors."""

import gc
import inspect
import threading

import numpy as np
import pytest
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor import _core

RULES = [name for name in S.__all__ if name not in ("Solver", "SolverState")]
"""Names of all classes of solvers."""


def adam(s, g, t, lr):
    """Adam in NumPy. Returns the decrement of the values."""
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    return lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def momentum(s, g, t, lr):
    """Momentum in NumPy."""
    s["m"] = 0.9 * s.get("m", 0) + lr * g
    return s["m"]


def nesterov(s, g, t, lr):
    """Nesterov momentum in NumPy."""
    last = s.get("m", 0)
    s["m"] = 0.9 * last - lr * g
    return 0.9 * last - 1.9 * s["m"]


def rmsprop(s, g, t, lr):
    """RMSprop in NumPy."""
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    return lr * g / (np.sqrt(s["v"]) + 1e-8)


def adagrad(s, g, t, lr):
    """AdaGrad in NumPy."""
    s["v"] = s.get("v", 0) + g * g
    return lr * g / (np.sqrt(s["v"]) + 1e-8)


STEPS = {
    "Sgd": lambda s, g, t, lr: lr * g,
    "Momentum": momentum,
    "Nesterov": nesterov,
    "Adam": adam,
    "RMSprop": rmsprop,
    "Adagrad": adagrad,
}
"""Decrements of the values, from states, gradient, step number and learning rate."""


def parameter(*shape, dtype=np.float32, seed=0):
    """Returns a leaf with random values and gradient."""
    rng = np.random.RandomState(seed)
    values, gradient = (np.asarray(rng.randn(*shape), dtype) for _ in range(2))
    return nn.Variable.from_numpy_array(values, gradient, need_grad=True)


def solver(name="Adam", **parameters):
    """Returns a solver with these parameters."""
    s = getattr(S, name)()
    s.set_parameters(parameters or {"w": parameter(2, 3)})
    return s


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", STEPS)
def test_steps_match_a_plain_formula(name, dtype):
    """Five updates of each solver equal a NumPy implementation."""
    rng = np.random.RandomState(3)
    parameters = {
        "a/W": parameter(3, 5, dtype=dtype),
        "b": parameter(dtype=dtype),
        "empty": parameter(0, 2, dtype=dtype),
    }
    plain = {key: np.asarray(v.d, np.float64).copy() for key, v in parameters.items()}
    states = {key: {} for key in parameters}
    s = getattr(S, name)(0.05)
    s.set_parameters(parameters)
    for t in range(1, 6):
        if t == 4:
            s.set_learning_rate(0.01)
        for key, v in parameters.items():
            v.g = g = np.asarray(rng.randn(*v.shape), dtype)
            plain[key] -= STEPS[name](states[key], g.astype(np.float64), t, 0.05 if t < 4 else 0.01)
        s.update()
    for key, v in parameters.items():
        assert v.d.dtype == dtype
        np.testing.assert_allclose(v.d, plain[key], rtol=0, atol=1e-13 if dtype == np.float64 else 2e-6)


@pytest.mark.parametrize("name", RULES)
def test_each_class_is_documented_and_minimises(name):
    """Each solver class documents its arguments and lowers a quadratic loss."""
    kind = getattr(S, name)
    parameters = inspect.signature(kind).parameters
    assert all(f"    {arg}: " in kind.__doc__ for arg in parameters)
    defaults = {arg: p.default for arg, p in parameters.items()}
    made = kind(**defaults)
    assert isinstance(made, S.Solver)
    assert made.name == name == kind.__name__
    assert list(made.info) == list(parameters)
    assert made.info == kind(*defaults.values()).info == kind().info
    assert repr(made).startswith(f"{name}(")
    # A quadratic bowl: every solver gets nearer to its minimum.
    w = nn.Variable.from_numpy_array(np.array([2.0, -3.0], np.float32), need_grad=True)
    loss = F.sum((w - 1) ** 2)
    made.set_parameters({"w": w})
    made.set_learning_rate(0.01)
    distances = []
    for _ in range(20):
        loss.forward()
        distances.append(float(loss))
        made.zero_grad()
        loss.backward()
        made.update()
    assert distances[-1] < distances[0]


@pytest.mark.parametrize("name", RULES)
def test_the_learning_rate_and_arguments_are_read_as_they_were_set(name):
    """Rates and arguments that float32 does not hold are exact. Under NNabla's names they are float32, as there."""
    first = next(iter(getattr(S, name).__signature__.parameters))
    s = getattr(S, name)(**{first: 0.1})
    assert s.learning_rate() == s.info[first] == 0.1
    s.set_learning_rate(0.2)
    assert s.learning_rate() == 0.2
    assert s.info[first] == 0.1
    before = _core.dialect()
    _core.set_dialect("nnabla")
    try:
        assert (s.learning_rate(), s.info[first]) == (np.float32(0.2), np.float32(0.1))
    finally:
        _core.set_dialect(before)


def test_parameters_keep_their_order():
    """Parameters stay in the order of registration when some are removed."""
    parameters = {key: parameter(2) for key in "zay"}
    s = solver(**parameters)
    assert list(s.get_parameters().items()) == list(parameters.items())
    with pytest.raises(nn.ParameterError, match="remove_parameters: expected names of parameters of the solver"):
        s.remove_parameters({"a": 0, "not there": 0}.keys())
    assert list(s.get_parameters()) == ["z", "a", "y"]
    s.remove_parameters({"a": 0}.keys())
    assert list(s.get_parameters()) == ["z", "y"]
    s.clear_parameters()
    assert s.get_parameters() == {}
    with pytest.raises(nn.GraphError, match="expected parameters, got none"):
        s.update()


def test_more_parameters_replace_or_take_over():
    """`set_parameters` replaces a parameter, and keeps its state with `retain_state`."""
    w, other = parameter(2), parameter(2, seed=1)
    s = solver(w=w, b=parameter(1))
    s.update()
    s.set_parameters({"w": other}, reset=False, retain_state=True)
    assert s.get_parameters()["w"] == other
    assert {key: state.t for key, state in s.get_states().items()} == {"w": 1, "b": 1}
    s.set_parameters({"w": w}, reset=False)
    assert s.get_parameters()["w"] == w
    assert {key: state.t for key, state in s.get_states().items()} == {"w": 0, "b": 1}
    with pytest.raises(nn.ShapeError, match="'w'"):
        s.set_parameters({"b": parameter(1), "w": parameter(3)}, reset=False, retain_state=True)
    assert s.get_parameters()["w"] == w
    s.set_parameters({"w": w})
    assert list(s.get_parameters()) == ["w"]


def test_later_assigned_data_and_grad_are_used():
    w = parameter(2)
    s = solver("Sgd", w=w)
    s.set_learning_rate(1)
    w.data = values = nn.NdArray.from_numpy_array(np.array([5.0, 6.0], np.float32))
    w.grad = nn.NdArray.from_numpy_array(np.array([1.0, 2.0], np.float32))
    s.update()
    assert values.data.tolist() == [4.0, 4.0]


def test_a_view_of_a_parameter_sees_its_updates():
    w = parameter(2)
    view, before = w.d, w.d.copy()
    s = solver("Sgd", w=w)
    s.set_learning_rate(1)
    s.update()
    np.testing.assert_array_equal(view, before - w.g)


def test_zeroed_gradients_are_skipped():
    """A parameter whose gradient was zeroed and not written is not updated."""
    a, b = parameter(2), parameter(2)
    s = solver("Momentum", a=a, b=b)
    before = b.d.copy()
    s.zero_grad()
    assert a.grad.zeroing
    a.g = 1
    calls = []
    s.weight_decay(0.5, post_hook=lambda: calls.append("decay"))
    s.update(update_post_hook=lambda: calls.append("update"))
    assert calls == ["decay", "update"]
    assert b.grad.zeroing
    np.testing.assert_array_equal(b.d, before)
    assert [state.t for state in s.get_states().values()] == [1, 0]


LOOKS = {
    "g": lambda w: w.g,
    "grad": lambda w: w.grad.data,
    "array": lambda w: np.asarray(w.grad),
    "repr": lambda w: (repr(w), repr(w.grad)),
    "get_data": lambda w: w.grad.get_data("r"),
}
"""Ways to read a gradient. On a zeroed gradient, none may change what the next update does."""


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_zeroed_gradient_changes_no_parameter(look, name):
    """Reading a zeroed gradient does not make the solver apply it."""
    w = parameter(2)
    s = solver(name, w=w)
    s.update()  # With moments, that a step without a gradient would move the parameter by.
    s.zero_grad()
    before, calls = w.d.copy(), []
    shown = LOOKS[look](w)
    s.weight_decay(0.5)
    s.update(update_post_hook=lambda: calls.append("update"))
    np.testing.assert_array_equal(w.d, before)
    assert (calls, s.get_states()["w"].t) == ([], 1)
    del shown


def test_a_gradient_written_through_a_view_counts():
    """A zeroed gradient that was written through a view is applied."""
    for value in (1.0, np.array([0.0, 2.0])):
        w = parameter(2)
        s = solver("Sgd", w=w)
        s.zero_grad()
        before = w.d.copy()
        w.g[...] = value
        s.update()
        np.testing.assert_array_equal(w.d, before - np.float32(1e-3) * np.asarray(value, np.float32))


def test_a_gradient_that_is_computed_as_zero_counts_after_a_look():
    """A gradient that backward computes as zero is applied."""
    w = parameter(2)
    s = solver("Momentum", w=w)
    s.update()
    s.zero_grad()
    assert not w.g.any()
    loss = F.sum(w * 0)
    loss.forward()
    loss.backward()
    before = w.d.copy()
    s.update()
    assert (w.d != before).all()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("look", [*LOOKS, None])
def test_a_gradient_that_a_user_computes_as_zero_counts_after_a_look(look, eager, whole):
    """A gradient that a user's function computes as zero is applied, assigned or written through a view."""

    class ZeroGradient(UnaryFunction):
        """The identity, with a gradient of zero."""

        def forward_impl(self, inputs, outputs):
            """Copies the input."""
            outputs[0].d = inputs[0].d

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            """Writes zeros, or adds them."""
            if not accum[0] and whole:
                inputs[0].g = 0
            else:
                inputs[0].g[...] += 0

    w = parameter(2)
    s = solver("Sgd", w=w)
    s.zero_grad()
    shown = LOOKS[look](w) if look else None
    with nn.auto_forward(eager):
        loss = F.sum(ZeroGradient()(w))
    loss.forward()
    loss.backward()
    del shown
    before = w.d.copy()
    s.weight_decay(0.5)
    s.update()
    assert (w.d != before).all()


def test_a_look_counts_as_a_gradient_in_programs_of_nnabla():
    """In NNabla's dialect, reading a zeroed gradient makes the solver apply it."""
    before = _core.dialect()
    _core.set_dialect("nnabla")
    try:
        w = parameter(2)
        s = solver("Momentum", w=w)
        s.update()
        s.zero_grad()
        assert not w.g.any()
        s.update()
        assert s.get_states()["w"].t == 2
    finally:
        _core.set_dialect(before)


def test_weight_decay_is_added_or_fused():
    """`weight_decay` adds to the gradient, or to the step of solvers that decouple it."""
    w = parameter(3)
    s = solver("Sgd", w=w)
    expected = w.g + np.float32(0.1) * w.d
    s.weight_decay(0.1)
    np.testing.assert_allclose(w.g, expected, rtol=1e-6)
    fused = [name for name in RULES if solver(name).weight_decay_is_fused()]
    assert fused == ["SgdW", "Lars", "AdamW", "Lamb", "Lion"]
    s = solver("Lion", w=w)
    s.set_learning_rate(1)
    before, gradient = w.d.copy(), w.g.copy()
    s.weight_decay(0.25)
    s.update()
    np.testing.assert_array_equal(w.g, gradient)
    np.testing.assert_allclose(w.d, before - np.sign(gradient) - 0.25 * before, rtol=1e-6)


def test_gradients_are_clipped_scaled_and_checked():
    """Clipping, scaling and checks of gradients."""
    a, b = parameter(2), parameter(1)
    s = solver("Sgd", a=a, b=b)
    a.g, b.g = [3.0, 4.0], [0.5]
    s.clip_grad_by_norm(1.0)
    np.testing.assert_allclose(a.g, [0.6, 0.8], rtol=1e-6)
    assert b.g.tolist() == [0.5]
    s.scale_grad(10)
    np.testing.assert_allclose(a.g, [6, 8], rtol=1e-6)
    assert s.clip_grad_by_global_norm(1000) == pytest.approx(np.sqrt(125), rel=1e-6)
    assert b.g.tolist() == [5.0]
    assert s.clip_grad_by_global_norm(1.0) == pytest.approx(np.sqrt(125), rel=1e-6)
    np.testing.assert_allclose(np.append(a.g, b.g), np.array([6, 8, 5]) / np.sqrt(125), rtol=1e-6)
    assert (s.check_inf_grad(), s.check_nan_grad(), s.check_inf_or_nan_grad()) == (False, False, False)
    b.g = np.inf
    assert (s.check_inf_grad(), s.check_nan_grad(), s.check_inf_or_nan_grad()) == (True, False, True)
    b.g = np.nan
    assert (s.check_inf_grad(), s.check_nan_grad(), s.check_inf_or_nan_grad()) == (False, True, True)
    before = a.g.copy()
    assert np.isnan(s.clip_grad_by_global_norm(0.1))
    np.testing.assert_array_equal(a.g, before)


@pytest.fixture
def no_hooks_left():
    """Removes all solver hooks after the test."""
    yield
    for key in list(nn.hooks.SOLVER["pre"]):
        nn.unset_solver_pre_hook(key)
    for key in list(nn.hooks.SOLVER["post"]):
        nn.unset_solver_post_hook(key)


def test_hooks_run_around_the_update_of_each_parameter(no_hooks_left):
    a, b = parameter(1), parameter(1)
    s = solver("Sgd", a=a, b=b)
    seen, start = [], [float(a), float(b)]

    def hook(name):
        """Returns a hook that records which parameters have been updated."""
        return lambda: seen.append((name, float(a) != start[0], float(b) != start[1]))

    nn.set_solver_pre_hook("x", hook("global pre"))
    nn.set_solver_post_hook("x", hook("global post"))
    s.update(update_pre_hook=hook("pre"), update_post_hook=hook("post"))
    once = ["global pre", "pre", "post", "global post"]
    assert [name for name, *_ in seen] == once * 2
    assert [changed for _, *changed in seen] == [[False, False]] * 2 + [[True, False]] * 4 + [[True, True]] * 2
    nn.unset_solver_pre_hook("x")
    nn.unset_solver_post_hook("x")
    for method, *args in (("weight_decay", 0.1), ("clip_grad_by_norm", 1.0), ("scale_grad", 2.0), ("check_inf_grad",)):
        seen.clear()
        getattr(s, method)(*args, pre_hook=hook("pre"), post_hook=hook("post"))
        assert [name for name, *_ in seen] == ["pre", "post"] * 2


def test_an_exception_in_a_hook_is_not_wrapped():
    a, b = parameter(1), parameter(1)
    s = solver("Sgd", a=a, b=b)
    before = float(b)

    class Stop(Exception):
        """Raised by the hook."""

    def stop():
        """A hook that raises."""
        raise Stop("here")

    with pytest.raises(Stop, match="here"):
        s.update(update_post_hook=stop)
    assert float(b) == before
    s.update()
    assert float(b) != before


def test_hooks_may_use_the_solver():
    """A hook may change the learning rate or remove parameters during an update."""
    s = solver("Sgd", a=parameter(1), b=parameter(1))
    rates = []

    def halve():
        """A hook that halves the learning rate."""
        s.set_learning_rate(s.learning_rate() / 2)
        rates.append(s.learning_rate())

    s.update(halve)
    assert rates == [np.float32(5e-4), np.float32(2.5e-4)]
    s.update(s.clear_parameters)
    assert s.get_parameters() == {}


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda s: s.setup({}), RuntimeError),
        (lambda s: s.set_parameters([1]), TypeError),
        (lambda s: s.set_parameters({"w": np.zeros(2)}), TypeError),
        (lambda s: s.set_parameters({1: parameter(2)}), TypeError),
        (lambda s: s.set_learning_rate(-1), ValueError),
        (lambda s: s.set_learning_rate(float("nan")), ValueError),
        (lambda s: s.weight_decay(-1), ValueError),
        (lambda s: s.clip_grad_by_norm(float("inf")), ValueError),
        (lambda s: s.clip_grad_by_global_norm(-1), ValueError),
        (lambda s: s.scale_grad(float("nan")), ValueError),
        (lambda s: s.update(1), TypeError),
        (lambda s: s.set_states({"w": None}), TypeError),
        (lambda s: S.Adam(lr=1), TypeError),
        (lambda s: S.Adam("fast"), TypeError),
        (lambda s: S.Adam(-1), ValueError),
        (lambda s: S.Adam(beta1=1.5), ValueError),
        (lambda s: S.Adam(1, 0.9, 0.9, 1, 1), TypeError),
        (lambda s: S.Adam(1, alpha=1), TypeError),
        (lambda s: S.Solver("Adamant"), KeyError),
    ],
)
def test_bad_input_is_refused(act, error):
    s = solver()
    with pytest.raises(error):
        act(s)
    assert list(s.get_parameters()) == ["w"]
    s.update()


def test_changed_or_cleared_parameters_are_refused_before_any_update():
    a, b = parameter(1), parameter(2)
    s = solver("Sgd", a=a, b=b)
    before = float(a)
    b.reset_shape((3,), force=True)
    b.g = 1
    with pytest.raises(nn.ShapeError, match="'b'"):
        s.update()
    b.reset_shape((2,), force=True)
    b.g = 1
    b.data.clear()
    with pytest.raises(nn.ClearedError, match="'b'"):
        s.update()
    assert float(a) == before


def test_the_solver_holds_its_parameters():
    """A solver keeps its parameters alive."""
    s = solver(w=parameter(2))
    gc.collect()
    before = s.get_parameters()["w"].d.copy()
    s.update()
    assert not np.array_equal(before, s.get_parameters()["w"].d)


def test_two_solvers_update_in_two_threads():
    """Solvers may update on several threads at the same time."""
    solvers = [solver(w=parameter(1 << 20)) for _ in range(2)]
    threads = [threading.Thread(target=lambda s=s: [s.update() for _ in range(5)]) for s in solvers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (s.get_parameters()["w"].d for s in solvers)
    np.testing.assert_array_equal(first, second)
    assert all(s.get_states()["w"].t == 5 for s in solvers)
