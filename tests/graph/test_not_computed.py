"""Outputs that no run has computed: reading them fails, and `repr` says so."""

import copy
import pickle

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import _core


def example_leaf(values=(1.0, 2.0), need_grad=False):
    """Returns a leaf with these values."""
    return nn.Variable.from_numpy_array(np.array(values, np.float32), need_grad=need_grad)


READS = {
    "d": lambda y: y.d,
    "data": lambda y: y.data.data,
    "get_data": lambda y: y.data.get_data("r"),
    "get_data to write to a part": lambda y: y.data.get_data("rw"),
    "cast": lambda y: y.data.cast(np.float32),
    "address": lambda y: y.data.data_ptr(np.float32),
    "copy_from": lambda y: nn.NdArray(2).copy_from(y.data),
    "numpy": lambda y: y.numpy(),
    "asarray": np.asarray,
    "dlpack": np.from_dlpack,
    "dtype": lambda y: y.dtype,
    "pickle": pickle.dumps,
    "unlinked": lambda y: y.get_unlinked_variable().d,
    "detached": lambda y: y.detach().d,
    "copy": lambda y: copy.copy(y).d,
    "function of an array": lambda y: F.exp(y.data),
    "array beside a variable": lambda y: F.add2(y, nn.NdArray(2)),
}
"""Ways to read the value of a variable. Each must raise if it was not computed."""


@pytest.mark.parametrize("read", READS)
def test_reading_an_output_that_was_not_computed_fails(read):
    y = F.exp(example_leaf())
    with pytest.raises(nn.NotComputedError, match=r"call forward\(\), or build under nn\.auto_forward\(\)"):
        READS[read](y)
    with pytest.raises(nn.NotComputedError):
        y.d  # noqa: B018 - the refused read has written nothing.
    y.forward()
    READS[read](y)


@pytest.mark.parametrize("read", [nn.Variable.item, float, bool])
def test_reading_a_number_that_was_not_computed_fails(read):
    y = F.sum(example_leaf())
    with pytest.raises(nn.NotComputedError, match=r"call forward\(\), or build under nn\.auto_forward\(\)"):
        read(y)
    y.forward()
    assert read(y) == (True if read is bool else 3.0)


def test_the_error_names_the_function_and_the_variable():
    y = F.exp(example_leaf())
    y.name = "scores"
    with pytest.raises(
        nn.NotComputedError, match="got variable 'scores' of shape \\(2,\\), which exp has not computed"
    ):
        y.d  # noqa: B018
    assert issubclass(nn.NotComputedError, nn.GraphError)


@pytest.mark.parametrize("with_grad", [True, False])
def test_dynamic_functions_of_an_output_that_was_not_computed_fail(with_grad):
    y = F.exp(example_leaf(need_grad=with_grad))
    with nn.auto_forward():
        if with_grad:
            with pytest.raises(nn.NotComputedError, match="cos: expected computed values"):
                F.cos(y)
        else:
            with nn.no_grad(), pytest.raises(nn.NotComputedError, match="cos: expected computed values"):
                F.cos(y)
        y.forward()
        np.testing.assert_allclose(F.cos(y).d, np.cos(y.d), rtol=1e-6)


def test_handles_that_were_taken_before_the_run_show_its_values():
    y = F.exp(example_leaf())
    array, unlinked, detached = y.data, y.get_unlinked_variable(), y.detach()
    y.forward()
    for found in (array.data, unlinked.d, detached.d):
        np.testing.assert_array_equal(found, y.d)


def test_values_that_were_assigned_are_read():
    """Values assigned to an output that has not run can be read."""
    y = F.exp(example_leaf())
    y.d = [3.0, 4.0]
    assert y.d.tolist() == [3.0, 4.0]
    z = F.exp(example_leaf())
    z.data.get_data("w")[...] = 5.0
    assert z.d.tolist() == [5.0, 5.0]
    w = F.exp(example_leaf())
    w.data.zero()
    assert w.d.tolist() == [0.0, 0.0]
    v = F.exp(example_leaf())
    v.d = 0.0
    assert v.d.tolist() == v.data.data.tolist() == [0.0, 0.0]
    assert "not computed" not in repr(v)


def test_leaves_read_as_zeros_and_gradients_too():
    """A new leaf, and the gradient of an output that has not run, read as zeros."""
    x = nn.Variable((2,), need_grad=True)
    assert x.d.tolist() == [0.0, 0.0]
    assert x.dtype == np.float32
    assert F.exp(x).g.tolist() == [0.0, 0.0]


def test_outputs_in_the_memory_of_a_leaf_are_there():
    """An output that aliases a leaf can be read before any run."""
    assert F.reshape(example_leaf(), (2, 1)).d.tolist() == [[1.0], [2.0]]


def test_functions_run_as_they_are_built_are_computed():
    with nn.auto_forward():
        y = F.exp(example_leaf())
        assert y.d.shape == (2,)
        assert "not computed" not in repr(y)
    y = F.exp(example_leaf())
    F.sum(y).forward()
    assert y.d.shape == (2,)


def test_programs_of_nnabla_read_zeros():
    """In NNabla's dialect, an output that has not run reads as zeros."""
    before = _core.dialect()
    _core.set_dialect("nnabla")
    try:
        y = F.exp(example_leaf())
        assert y.d.tolist() == [0.0, 0.0]
        assert F.exp(example_leaf()).data.data.tolist() == [0.0, 0.0]
        assert F.mean(F.exp(example_leaf())).item() == 0.0
    finally:
        _core.set_dialect(before)


def test_repr_says_that_it_is_not_computed():
    y = F.exp(example_leaf())
    assert repr(y) == "<Variable((2,), need_grad=False, by Exp), not computed>"
    assert "Variable, not computed" in y._repr_html_()
    y.forward()
    assert repr(y).splitlines()[0] == "<Variable((2,), float32, need_grad=False, by Exp)"


def test_repr_says_that_an_input_changed_since():
    x = example_leaf()
    y = F.exp(F.sin(x))
    y.forward()
    assert "stale" not in repr(y)
    x.d = [5.0, 6.0]
    assert ", stale: an input changed since\n" in repr(y)
    assert "stale" in y._repr_html_()
    y.forward()
    assert "stale" not in repr(y)


def test_values_are_not_stale_after_a_look_or_a_layer_with_statistics():
    x = example_leaf([[1.0, 2.0], [3.0, 5.0]])
    with nn.parameter_scope("", {}):
        y = F.relu(PF.batch_normalization(x), inplace=True)
        y.forward()
        assert x.d.shape == (2, 2)
        assert "stale" not in repr(y)


def test_a_loss_is_stale_after_the_update_of_its_parameters():
    w = example_leaf(need_grad=True)
    loss = F.sum(w * w)
    solver = S.Sgd(0.1)
    solver.set_parameters({"w": w})
    loss.forward()
    solver.zero_grad()
    loss.backward()
    assert "stale" not in repr(loss)
    solver.update()
    assert "stale" in repr(loss)
