"""Behaviour that NNabla's programs rely on: memory over repeated runs, flags, handles."""

import numpy as np
import pytest
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F
from kinnor import _core


def mean_of_squares(x):
    """Returns the mean of the squares of `tanh(sin(x))`."""
    h = F.tanh(F.sin(x))
    return F.mean(h * h)


@pytest.mark.parametrize("clear_no_need_grad", [False, True])
def test_a_graph_keeps_training_with_cleared_buffers(clear_no_need_grad):
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), need_grad=True)
    loss = mean_of_squares(x)
    loss.forward()
    loss.backward()
    expected = x.g.copy()
    for grad in (1, 1, 2.0, 1):
        x.grad.zero()
        loss.forward(clear_no_need_grad=clear_no_need_grad)
        loss.backward(grad, clear_buffer=True)
        np.testing.assert_array_equal(x.g, expected * grad)


def test_the_gradient_of_the_root_stays_after_a_clearing_run():
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    y = F.sin(F.cos(x))
    for seed in (np.array([1.0, 2.0]), 1, None):
        y.g = 3
        y.forward()
        y.backward(seed, clear_buffer=True)
        assert y.g.tolist() == [3, 3]


def recorded(run):
    """Calls `run`. Returns, for each function that ran, if each of its inputs was cleared."""
    _core.record_clear_flags(True)
    try:
        run()
        return [[data for data, _ in inputs] for inputs, _ in _core.recorded_clear_flags()]
    finally:
        _core.record_clear_flags(False)


def test_a_record_shows_recomputed_functions():
    """A record of what runs clear also has the functions that a backward run recomputes."""
    x = nn.Variable((2, 3), need_grad=True)
    h = F.cos(F.identity(x).apply(recompute=True)).apply(recompute=True)
    y = F.sin(h)
    assert recorded(lambda: y.forward(clear_no_need_grad=True)) == [[False], [True], [True]]
    # First the recomputed functions, then the gradients.
    assert recorded(y.backward) == [[False], [False], [False], [False], [False]]


@pytest.mark.parametrize("batch_stat", [False, True])
def test_batch_normalization_keeps_values_for_its_gradient_graph(batch_stat):
    c = [nn.Variable.from_numpy_array(np.full((1, 3), v, np.float32), need_grad=True) for v in (0.5, 2.0, 0.1, 1.5)]
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(4, 3).astype(np.float32), need_grad=True)
    inputs = [x, *c]
    held = inputs if batch_stat else [F.identity(v) for v in inputs]
    y = F.batch_normalization(*held, batch_stat=batch_stat)
    y.forward(clear_no_need_grad=True)
    gamma = nn.grad(y, [held[2]])[0]
    gamma.forward()
    mean, variance = (x.d.mean(0), x.d.var(0)) if batch_stat else (0.1, 1.5)
    np.testing.assert_allclose(gamma.d[0], ((x.d - mean) / np.sqrt(variance + 1e-5)).sum(0), rtol=1e-4, atol=1e-5)


def test_reshape_without_a_link_keeps_need_grad():
    """`reshape(unlink=True)` keeps `need_grad` and has no parent."""
    x = nn.Variable((2, 3), need_grad=True)
    y = F.sin(x).reshape((3, 2), unlink=True)
    assert y.need_grad
    assert y.parent is None
    y.need_grad = False
    assert not y.reshape((6,), unlink=True).need_grad


def test_references_count_variables_that_share_memory():
    """`get_number_of_references` counts the variables that share the data."""
    x = nn.Variable((2, 3))
    assert x.get_number_of_references == 1
    y = F.reshape(x, (3, 2))
    twin = x.get_unlinked_variable()
    assert (x.get_number_of_references, y.get_number_of_references) == (3, 3)
    del y, twin
    assert x.get_number_of_references == 1


def test_an_error_while_a_variable_is_dropped_is_raised_on_request():
    x = nn.Variable((2, 3), need_grad=True)
    with nn.auto_forward():
        h = x + 1
        h.data = nn.NdArray((4, 3)).narrow(0, 0, 2)
        h = h + 1
    with pytest.raises(RuntimeError, match="narrow"):
        nn.Variable._check_exception_at_dealloc()
    nn.Variable._check_exception_at_dealloc()


class Scaled(UnaryFunction):
    """A user's function: scales its input by a constant."""

    def __init__(self, ctx, factor):
        super().__init__(ctx)
        self.factor = factor

    def forward_impl(self, inputs, outputs):
        """Computes the output."""
        outputs[0].d = inputs[0].d * self.factor

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if propagate_down[0]:
            inputs[0].g = outputs[0].g * self.factor + (inputs[0].g if accum[0] else 0)


def test_a_python_function_passes_its_context_on():
    context = nn.Context()
    scaled = Scaled(context, 3)
    assert scaled.ctx is context
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    y = scaled(x)
    y.forward()
    y.backward()
    assert (y.d.tolist(), x.g.tolist()) == ([3, 6], [3, 3])


def test_a_tuple_inside_of_an_index_is_a_list():
    """A tuple within an index selects elements, as a list does."""
    x = nn.NdArray.from_numpy_array(np.arange(6.0))
    assert x[(1, 4),].data.tolist() == [1, 4]


def test_preferred_arrays():
    """`prefer_cached_array` changes the order of array classes."""
    nn.prefer_cached_array(False)
    try:
        assert "Cached" not in nn.array_classes()[0]
        nn.prefer_cached_array(True)
        assert "Cached" in nn.array_classes()[0]
    finally:
        nn.reset_array_preference()


def test_every_gradient_can_be_forwarded():
    """The results of `nn.grad` can run even if they are constants."""
    x = nn.Variable((2, 3), need_grad=True)
    for y, inputs, expected in ((F.identity(x), [x], 5), (F.sin(x), [nn.Variable((2, 3), need_grad=True)], 0)):
        (g,) = nn.grad(y, inputs, grad_outputs=5)
        g.forward()
        assert np.all(g.d == expected)


def test_resizing_takes_the_last_axes():
    """`interpolate` resizes as many last axes as sizes are given."""
    x = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(1, 2, 3), need_grad=True)
    y = F.interpolate(x, scale=(2.0,))
    assert y.shape == (1, 2, 6)
    assert F.interpolate(x, output_size=(4, 2)).shape == (1, 4, 2)
    assert F.interpolate(x, scale=(2, 3), channel_last=False, mode="nearest").shape == (1, 4, 9)
    with pytest.raises(ValueError, match="either scale or output_size"):
        F.interpolate(x)
    with pytest.raises(ValueError, match="linear or nearest"):
        F.interpolate(x, scale=(2,), mode="cubic")


def test_erased_patches_pass_no_gradient():
    """The gradient of `random_erase` is zero in erased patches with `ste_fine_grained`."""
    x = nn.Variable.from_numpy_array(np.ones((4, 3, 8, 8), np.float32), need_grad=True)
    for fine in (True, False):
        y = F.random_erase(x, prob=1.0, replacements=(7, 7), n=2, ste_fine_grained=fine)
        y.forward()
        erased = y.d == 7
        assert 0 < erased.mean() < 1
        x.grad.zero()
        y.backward()
        np.testing.assert_array_equal(x.g, ~erased if fine else np.ones(x.shape))
        (g,) = nn.grad(y, x)
        F.sink(g, y).forward()  # The second run draws other patches.
        np.testing.assert_array_equal(g.d, y.d != 7 if fine else np.ones(x.shape))


def test_arguments_are_shown_with_the_defaults_that_follow_from_the_input():
    """`info.args` of convolutions has values for the arguments that were left open."""
    x = nn.Variable((2, 4, 5, 6))
    args = F.convolution(x, nn.Variable((3, 4, 2, 2)), pad=(1, 0)).parent.info.args
    assert (args["pad"], args["stride"], args["dilation"], args["group"]) == ([1, 0], [1, 1], [1, 1], 1)
    args = F.deconvolution(x, nn.Variable((4, 3, 2, 2))).parent.info.args
    assert (args["pad"], args["stride"], args["output_padding"]) == ([0, 0], [1, 1], [0, 0])
    args = F.depthwise_convolution(x, nn.Variable((4, 2, 2))).parent.info.args
    assert (args["dilation"], args["multiplier"]) == ([1, 1], 1)
