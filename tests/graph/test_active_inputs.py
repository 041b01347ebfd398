"""`Function.set_active_input_mask` leaves inputs out of a sum or product. Masked inputs are not computed."""

import gc

import numpy as np
import pytest
from support import UnaryFunction, leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff

REDUCE = {"add_n": np.sum, "mul_n": np.prod}
"""The NumPy reduction over the active inputs of each function."""
MASKS = ([True, False, True], [False, True, False], [True, True, True], [False, True, True])
"""Active inputs of a function with three inputs. Consecutive masks differ."""


class Counted(UnaryFunction):
    """A user's identity function that counts its runs."""

    def __init__(self):
        """Makes a function that has not run."""
        super().__init__()
        self.runs = 0

    def forward_impl(self, inputs, outputs):
        """Copies the input, and counts the run."""
        self.runs += 1
        outputs[0].d = inputs[0].d

    def backward_impl(self, inputs, outputs, propagate_down, accum):
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        inputs[0].g = outputs[0].g + (inputs[0].g if accum[0] else 0)


def built(name):
    """Builds the function `name` on three inputs. Returns leaves, counting functions, the inputs and the output."""
    leaves = [leaf(1.5, 2), leaf(3, -4), leaf(-0.5, 6)]
    counters = [Counted() for _ in leaves]
    hidden = [counter(x * 1.0) for counter, x in zip(counters, leaves, strict=True)]
    return leaves, counters, hidden, getattr(F, name)(*hidden)


def expected(name, leaves, mask):
    """Returns the value and the gradients of `name` if only the inputs that `mask` selects take part."""
    chosen = [x.d.copy() for x, is_chosen in zip(leaves, mask, strict=True) if is_chosen]
    y = REDUCE[name](chosen, axis=0)
    parts = zip(leaves, mask, strict=False)
    each = [np.ones(2) if name == "add_n" else y / x.d if is_chosen else None for x, is_chosen in parts]
    return y, [np.zeros(2) if not is_chosen else g for g, is_chosen in zip(each, mask, strict=True)]


@pytest.mark.parametrize("name", REDUCE)
@pytest.mark.parametrize("clear", [False, True])
def test_inputs_that_are_set_aside_do_not_count_and_do_not_run(name, clear):
    """Masked inputs are left out of the result and not computed."""
    leaves, counters, hidden, y = built(name)
    for mask in (*MASKS, *MASKS):
        y.parent.set_active_input_mask(mask)
        for _ in range(3):  # plain, then by a plan, then by a fused one
            before = [counter.runs for counter in counters]
            y.forward(clear_no_need_grad=clear)
            value, gradients = expected(name, leaves, mask)
            np.testing.assert_allclose(y.d, value, rtol=1e-6)
            assert [counter.runs - b for counter, b in zip(counters, before, strict=True)] == [int(m) for m in mask]
            for x in leaves:
                x.grad.zero()
            y.backward(clear_buffer=clear)
            for x, g in zip(leaves, gradients, strict=True):
                np.testing.assert_allclose(x.g, g, rtol=1e-6)
        assert y.parent.inputs == hidden


@pytest.mark.parametrize("name", REDUCE)
def test_other_derivatives_go_without_them_too(name):
    """`autodiff.grad` leaves masked inputs out."""
    leaves, _, _, y = built(name)
    mask = [True, False, True]
    y.parent.set_active_input_mask(mask)
    _, gradients = expected(name, leaves, mask)
    y.forward()
    found = autodiff.grad(y, leaves, grad_outputs=nn.Variable.from_numpy_array(np.ones(2)), allow_unused=True)
    for g, right in zip(found, gradients, strict=True):
        np.testing.assert_allclose(np.zeros(2) if g is None else g.d, right, rtol=1e-6)


@pytest.mark.parametrize("name", REDUCE)
def test_masks_in_eager_mode_and_in_nn_grad(name):
    """`nn.grad` leaves masked inputs out."""
    leaves = [leaf(1.5, 2), leaf(3, -4), leaf(-0.5, 6)]
    y = getattr(F, name)(*leaves)
    y.parent.set_active_input_mask([True, False, True])
    z = y * 2.0
    found = nn.grad([z], [leaves[0], leaves[2]])
    nn.forward_all([z, *found])
    value, gradients = expected(name, leaves, [True, False, True])
    np.testing.assert_allclose(z.d, 2 * value, rtol=1e-6)
    for g, right in zip(found, (gradients[0], gradients[2]), strict=True):
        np.testing.assert_allclose(g.d, 2 * right, rtol=1e-6)


@pytest.mark.parametrize("name", REDUCE)
def test_direct_calls_take_all_inputs(name):
    """A direct call takes all inputs, and computes with the active ones only."""
    leaves = [leaf(1.5, 2), leaf(3, -4), leaf(-0.5, 6)]
    y = getattr(F, name)(*leaves)
    y.parent.set_active_input_mask([False, True, True])
    y.parent.forward(y.parent.inputs, [y])
    value, gradients = expected(name, leaves, [False, True, True])
    np.testing.assert_allclose(y.d, value, rtol=1e-6)
    for x in leaves:
        x.g = 0
    y.g = 1
    y.parent.backward(y.parent.inputs, [y], [True, True, False])
    for x, g in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(x.g, g, rtol=1e-6)


def test_what_is_refused():
    """Masks of another length or without an active input, and other functions, are refused."""
    leaves = [leaf(1, 2), leaf(3, 4)]
    y = F.add_n(*leaves)
    for mask in ([True], [True] * 3, [False, False]):
        with pytest.raises(ValueError, match="set_active_input_mask: expected a mask of 2 with one True at least"):
            y.parent.set_active_input_mask(mask)
    with pytest.raises(ValueError, match="expected a function AddN or MulN, got Sin"):
        F.sin(y).parent.set_active_input_mask([True])
    y.forward()
    assert y.d.tolist() == [4, 6]


def test_inputs_that_are_set_aside_are_held_and_freed_with_the_function():
    gc.collect()
    before = _core.live_variables()
    for mask in MASKS:
        leaves = [leaf(1, 2), leaf(3, 4), leaf(5, 6)]
        y = F.add_n(*[F.sin(x) for x in leaves])
        y.parent.set_active_input_mask(mask)
        del leaves
        assert len(y.parent.inputs) == 3
        y.parent.inputs[0].forward()
        y.forward()
        y.parent.set_active_input_mask([True, True, True])
        y.forward()
        del y
    gc.collect()
    assert _core.live_variables() == before
