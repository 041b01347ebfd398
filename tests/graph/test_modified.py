"""Values that change between forward and backward: every change is detected, and unchanged values never raise."""

import re
import threading
import warnings

import numpy as np
import pytest
from support import UnaryFunction, leaf

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import autodiff


@pytest.fixture(autouse=True)
def every_warning_is_an_error():
    """Turns all warnings into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


CHANGES = {
    "set": lambda v: setattr(v, "d", 5.0),
    "array": lambda v: setattr(v, "d", np.array([5.0, 6.0])),
    "fill": lambda v: v.data.fill(5.0),
    "zero": lambda v: v.data.zero(),
    "cast": lambda v: v.data.cast(np.float64).fill(5.0),
    "copy": lambda v: v.data.copy_from(nn.NdArray.from_numpy_array(np.array([5.0, 6.0], np.float32))),
    "other": lambda v: setattr(v, "data", nn.NdArray.from_numpy_array(np.array([5.0, 6.0], np.float32))),
}
"""Ways to change the value of a variable between the forward and the backward run."""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_changed_input_is_detected(change, dynamic):
    """Backward warns if an input that a gradient reads was written after forward."""
    x = leaf(2.0, 3.0, name="x")
    with nn.auto_forward(dynamic):
        y = F.sum(x * x)
    y.forward()
    CHANGES[change](x)
    with pytest.raises(UserWarning, match=r"backward of mul2: .* but input 0, .*'x'.* was changed since: it is "):
        y.backward()


def test_the_new_value_is_used_with_one_warning():
    """Backward warns once, and computes gradients from the changed value."""
    x, w = leaf(2.0), leaf(3.0)
    y = x * w * w
    y.forward()
    w.d = 10.0
    with pytest.warns(UserWarning, match="changed since") as told:
        y.backward()
    assert len(told) == 1
    assert x.g.tolist() == [100.0]


def test_a_changed_output_that_a_gradient_reads_is_detected():
    x = leaf(0.5)
    h = F.tanh(x)
    y = h + 1
    y.forward()
    h.d = 0.25
    with pytest.raises(UserWarning, match=r"of tanh: .* output 0 was changed .* version 2; expected version 1"):
        y.backward()


def test_versions_count_writes():
    """The warning states the version of the value, which counts writes and wraps at 2^16."""
    x, w = leaf(2.0, 3.0), leaf(4.0, 5.0)
    y = F.sum(x * w)
    for writes in (1, 2, 70000):
        y.forward()
        w.d, str(x.d)  # reading is not a write
        for _ in range(writes):
            w.data.fill(7.0)
        with pytest.raises(UserWarning, match=r"input 1, .* is at version (\d+); expected version (\d+)") as told:
            y.backward()
        now, then = map(int, re.findall(r"version (\d+)", str(told.value)))
        assert now - then == (writes if writes < 1 << 16 else writes - (1 << 16))
    w.data = nn.NdArray.from_numpy_array(np.ones(2, np.float32))
    y.forward()
    w.data = nn.NdArray.from_numpy_array(np.ones(2, np.float32))
    with pytest.raises(UserWarning, match="changed since: it is in other memory"):
        y.backward()


def test_the_check_can_raise_or_be_off():
    x = leaf(2.0)
    y = x**2
    y.forward()
    x.d = 3.0
    nn.config.check_saved = "raise"
    try:
        with pytest.raises(nn.ModifiedError, match="run forward"):
            y.backward()
        nn.config.check_saved = "ignore"
        y.backward()
    finally:
        nn.config.check_saved = "warn"
    assert x.g.tolist() == [6.0]
    with pytest.raises(ValueError, match="'ignore', 'warn' or 'raise'"):
        nn.config.check_saved = "sometimes"


def test_values_that_no_gradient_reads_may_change():
    """Writes to values that no gradient reads cause no warning."""
    x, b = leaf(2.0), leaf(1.0)
    h = x * 3
    y = h + b
    y.forward()
    x.d, b.d, h.d = 7.0, 8.0, 9.0
    y.backward()
    assert x.g.tolist() == [3.0]


def test_reading_is_not_a_change():
    """Reading values in any way causes no warning."""
    x = leaf(2.0, 3.0)
    h = F.exp(x)
    y = F.sum(h * h)
    y.forward()
    str(h.d), h.d.sum(), x.data.data, np.asarray(x), x.data.dtype
    y.backward()


def test_forward_again_is_no_change():
    """Running a shared value forward again on the same inputs causes no warning."""
    x = leaf(0.5, 0.25)
    h = F.tanh(F.exp(x))
    one, two = F.sum(h * h), F.sum(F.sin(h))
    one.forward()
    two.forward()
    one.backward()
    two.backward()
    one.forward(clear_no_need_grad=True)
    two.forward(clear_no_need_grad=True)
    one.backward()
    two.backward()


def test_a_trunk_from_other_inputs_is_a_change():
    """Running a shared value on changed inputs makes the other loss warn."""
    x = leaf(0.5)
    h = F.exp(x)
    one, two = h * h, F.sin(h)
    one.forward()
    x.d = 0.75
    two.forward()
    two.backward()
    with pytest.raises(UserWarning, match="mul2"):
        one.backward()


def test_dropout_in_a_trunk_draws_new_masks():
    x = leaf(*np.linspace(0.1, 1, 50))
    h = F.dropout(x, 0.5)
    one, two = F.sum(h * h), F.sum(F.sin(h))
    one.forward()
    two.forward()
    with pytest.raises(UserWarning, match="changed since"):
        one.backward()


@pytest.mark.parametrize("batch_stat", [False, True])
def test_statistics_that_move_are_no_change(batch_stat):
    """Updates of running statistics in a shared graph cause no warning."""
    with nn.parameter_scope(f"statistics {batch_stat}"):
        x = nn.Variable.from_numpy_array(np.random.default_rng(0).normal(size=(4, 3, 2, 2)).astype("f"), need_grad=True)
        h = F.relu(PF.batch_normalization(x, batch_stat=batch_stat))
        one, two = F.sum(h * h), F.sum(F.sin(h))
        one.forward()
        two.forward()
        one.backward()
        two.backward()


@pytest.mark.parametrize("mark", [nn.recompute, lambda: nn.recompute(False)])
def test_recomputing_and_clearing_are_no_change(mark):
    """Recomputed and cleared values cause no warning."""
    x = leaf(*np.linspace(0.1, 1, 10))
    with mark():
        h = F.dropout(F.tanh(F.exp(x)), 0.3)
        y = F.sum(F.sin(h) * h)
    for _ in range(3):
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True)


def test_a_training_loop_is_silent():
    """Ordinary training loops, static and eager, cause no warning."""
    rng = np.random.default_rng(0)
    for dynamic in (False, True):
        with nn.parameter_scope(f"loop {dynamic}"), nn.auto_forward(dynamic):
            x, t = nn.Variable((8, 5)), nn.Variable((8, 1))
            solver = S.Adam(0.1)

            def loss(x=x, t=t):
                """Builds a loss with parameters, dropout and batch statistics."""
                h = F.dropout(F.relu(PF.batch_normalization(PF.affine(x, 6, name="a"))), 0.5)
                return F.mean(F.softmax_cross_entropy(PF.affine(h, 3, name="b"), t))

            y = loss()
            for _ in range(3):
                x.d, t.d = rng.normal(size=(8, 5)), rng.integers(0, 3, (8, 1))
                if dynamic:
                    y = loss()
                else:
                    y.forward(clear_no_need_grad=True)
                solver.set_parameters(nn.get_parameters(), reset=False, retain_state=True)
                solver.zero_grad()
                y.backward(clear_buffer=True)
                solver.update()


def test_an_update_between_is_a_change():
    """A second backward run after a solver's update warns."""
    with nn.parameter_scope("between"):
        x = leaf(1.0, 2.0)
        y = F.sum(PF.affine(x.reshape((1, 2)), 2) ** 2)
        solver = S.Sgd(0.1)
        solver.set_parameters(nn.get_parameters())
        y.forward()
        solver.zero_grad()
        y.backward()
        solver.update()
        with pytest.raises(UserWarning, match="affine"):
            y.backward()


def test_in_place_functions_are_no_change():
    """Writes of in-place functions cause no warning."""
    x = leaf(1.0, -2.0, 3.0)
    y = F.sum(F.relu(x * 2, inplace=True) * 3)
    for _ in range(2):
        y.forward()
        y.backward()


def test_a_users_function_is_no_change():
    """Writes of a user's function through views cause no warning."""

    class Double(UnaryFunction):
        """A user's function that writes through views."""

        def forward_impl(self, inputs, outputs):
            """Computes the output."""
            outputs[0].data.data[...] = 2 * inputs[0].data.data

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
            inputs[0].grad.data[...] = 2 * outputs[0].grad.data + (inputs[0].grad.data if accum[0] else 0)

    x = leaf(1.0, 2.0)
    h = Double()(F.exp(x))
    one, two = F.sum(h * h), F.sum(F.sin(h))
    one.forward()
    two.forward()
    one.backward()
    two.backward()


def test_threads_warn_for_themselves():
    """A thread that changes a value gets the warning of its own backward run."""
    found = []

    def work():
        """Changes a value between forward and backward, and records the warning."""
        x = leaf(2.0)
        y = x**2
        y.forward()
        x.d = 3.0
        try:
            y.backward()
        except UserWarning as told:
            found.append(told)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 4


def test_settings_of_the_engine_are_read_and_set():
    assert nn.config.execution_order in ("rank", "depth_first")
    assert nn.config.in_recomputing is False
    with pytest.raises(AttributeError):
        nn.config.in_recomputing = True
    with pytest.raises(ValueError, match="'rank' or 'depth_first'"):
        nn.config.execution_order = "wide"
    before = nn.config.execution_order
    nn.config.execution_order = before


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("clears", [False, True])
def test_results_of_functions_without_inputs_are_no_change(dynamic, clears):
    """Many functions at a time, so that each possible position in the arena occurs."""
    makers = [
        lambda: F.constant(2.0, (3,)),
        lambda: F.arange(0, 3),
        lambda: F.linspace(0.0, 1.0, 3),
        lambda: F.rand(shape=(3,)),
        lambda: F.reshape(F.constant(2.0, (3, 1)), (3,)),
    ]
    with nn.auto_forward(dynamic):
        all_of_them = [(leaf(1.0, 2.0, 3.0), make()) for make in makers for _ in range(20)]
        losses = [(x, F.sum(F.tanh(x * c))) for x, c in all_of_them]
    for x, loss in losses:
        if not dynamic:
            loss.forward(clear_no_need_grad=clears)
        loss.backward(clear_buffer=clears)
        assert np.isfinite(x.g).all()


def assigned(v, array):
    """Assigns an array to `v.d`."""
    v.d = array


def copied(v, array):
    """Copies an array into `v.data`."""
    v.data.copy_from(nn.NdArray.from_numpy_array(array), use_current_context=False)


@pytest.mark.parametrize("write", [assigned, copied])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_an_assignment_of_equal_values_is_no_change(write, dtype):
    x = nn.Variable.from_numpy_array(np.array([2, 3], dtype), need_grad=True)
    y = F.sum(F.pow_scalar(x, 2.0))
    y.forward()
    write(x, np.array([2, 3], dtype))
    y.backward()
    assert x.g.tolist() == [4, 6]
    for different in (np.array([2, 4], dtype), np.array([2, 3], np.float16), np.array([[2, 3]], dtype)[0][::-1]):
        y.forward()
        write(x, different)
        with pytest.raises(UserWarning, match="changed since"):
            y.backward()


def test_zeros_of_either_sign_and_nan_are_compared_by_their_bytes():
    x = leaf(0.0, np.nan)
    y = F.sum(x * x)
    y.forward()
    x.d = np.array([0.0, np.nan], np.float32)
    y.backward()
    x.d = np.array([-0.0, np.nan], np.float32)
    with pytest.raises(UserWarning, match="changed since"):
        y.backward()


def test_an_assignment_of_its_own_view_counts_as_a_write():
    x = leaf(2.0, 3.0)
    y = F.sum(x * x)
    y.forward()
    view = x.d
    view[0] = 9
    x.d = view
    with pytest.raises(UserWarning, match="changed since"):
        y.backward()


WAYS_BACK = {
    "backward": lambda y, x: y.backward() or x.g,
    "autodiff.backward": lambda y, x: autodiff.backward(y) or x.g,
    "autodiff.grad": lambda y, x: autodiff.grad(y, x)[0].d,
    "create_graph": lambda y, x: autodiff.grad(y, x, create_graph=True)[0].d,
}
"""Ways to differentiate `y` by `x`. Each returns the gradient."""


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("way", WAYS_BACK)
def test_an_unobserved_write_through_a_view_uses_the_new_numbers(way, dynamic, dtype, held):
    x = nn.Variable.from_numpy_array(np.array([2, 3], dtype), need_grad=True)
    view = x.d
    nn.config.check_saved = "raise"
    try:
        with nn.auto_forward(dynamic):
            h = F.sin(x)
            y = F.sum(x * x * h)
            y.forward()
            view[...] = [5, 7]
            if not held:
                del view
            found = WAYS_BACK[way](y, x)
    finally:
        nn.config.check_saved = "warn"
    old, new = np.array([2, 3]), np.array([5, 7])
    # The results of `sin` and the product are old, but their input is new.
    by_square = 2 * new * np.sin(old)
    by_sine = old**2 * np.cos(new)
    np.testing.assert_allclose(found, by_square + by_sine, rtol=1e-5)
