"""Graph features change no result of an operation: accumulation, clearing, recomputation, eager execution."""

import numpy as np
import pytest
from support import (
    TABLE,
    call,
    certain,
    clear_gradients,
    close,
    differentiate,
    gradients,
    loss_of,
    over,
    same,
    smooth,
    values,
    variables,
)

import kinnor as nn
import kinnor.functions as F


@over(smooth)
def test_gradients_add_up_and_start_from_zero_again(row):
    once = differentiate(row)
    xs = variables(row)
    loss = loss_of(row, call(row, xs))
    loss.forward()
    for x in xs:
        if x is not None:
            x.g = 1.0
    loss.backward()
    close([g - 1 for g in gradients(row, xs)], once, 1e-5, 1e-5, row)
    clear_gradients(xs)
    loss.forward()
    loss.backward()
    if not row.writes:
        same(gradients(row, xs), once, row)


@over(smooth)
def test_gradients_without_need_grad_are_not_written(row):
    once = differentiate(row)
    for unwanted in row.wanted:
        xs = variables(row)
        xs[unwanted].need_grad = False
        loss = loss_of(row, call(row, xs))
        loss.forward()
        clear_gradients(xs)
        xs[unwanted].g = 7.0
        loss.backward()
        for i, expected in zip(row.wanted, once, strict=True):
            np.testing.assert_array_equal(xs[i].g, 7.0 if i == unwanted else expected, err_msg=str(row))


@over(certain)
def test_eager_and_static_results_are_equal(row):
    """Each operation gives the same bits eagerly and in a static graph."""
    later = call(row, variables(row))
    for y in later:
        y.forward()
    with nn.auto_forward():
        at_once = call(row, variables(row))
    same(values(at_once), values(later), row)


@over(certain)
def test_results_on_arrays_equal_results_on_variables(row):
    ys = call(row, variables(row))
    for y in ys:
        y.forward()
    arrays = [x if x is None else nn.NdArray.from_numpy_array(x) for x in row.inputs]
    if arrays and any(x is not None for x in arrays):
        same(values(call(row, arrays)), values(ys), row)


def behind(row, xs):
    """Returns each input behind a multiplication by 1, so that its value can be cleared and recomputed."""
    through = []
    for i, x in enumerate(xs):
        through.append(F.mul_scalar(x, 1.0) if i in row.wanted and i not in row.writes else x)
    return through


def behind_gradients(row, forward=None, backward=None, hold=False, recompute=False):
    """Returns the gradients of a row through intermediate values, which the runs may clear unless `hold`."""
    xs = variables(row)
    nn.seed(3)
    with nn.recompute(recompute):
        inner = behind(row, xs)
        ys = call(row, inner)
    loss = loss_of(row, ys)
    held = (inner, ys) if hold else None
    del inner, ys
    loss.forward(**(forward or {}))
    clear_gradients(xs)
    loss.backward(**(backward or {}))
    del held
    return gradients(row, xs)


def differentiable(row):
    """True if the row has a gradient that two runs can compare."""
    return smooth(row) or (row.random and bool(row.wanted))


@over(differentiable)
def test_clearing_changes_no_gradient(row):
    """Each operation gives the same gradients in clearing and other runs."""
    expected = behind_gradients(row)
    same(behind_gradients(row, hold=True), expected, row)
    same(behind_gradients(row, {"clear_no_need_grad": True}, {"clear_buffer": True}), expected, row)
    same(behind_gradients(row, {"clear_no_need_grad": True}, {"clear_buffer": True}, hold=True), expected, row)


@over(differentiable)
def test_recomputing_changes_no_gradient(row):
    """Each operation gives the same gradients if its values are recomputed."""
    expected = behind_gradients(row)
    same(behind_gradients(row, recompute=True), expected, row)
    same(behind_gradients(row, {"clear_no_need_grad": True}, {"clear_buffer": True}, recompute=True), expected, row)


@over(certain)
def test_clearing_changes_no_value(row):
    """Each operation gives the right values if a run clears everything else."""
    ys = call(row, behind(row, variables(row)))
    for y in ys:
        y.forward(clear_buffer=True)
    close(values(ys), row.expected, row.tolerance, row.tolerance, row)


@pytest.mark.parametrize(("type_config", "digits"), [("half", 2**-10), ("bfloat16", 2**-7)])
@pytest.mark.parametrize("name", TABLE)
def test_sixteen_bits(name, type_config, digits):
    """Numbers are stored in 16 bits and computed in 32. The error comes from rounded inputs and one rounding."""
    for row in filter(certain, TABLE[name]):
        with nn.context_scope(nn.Context([f"cpu:{type_config}"])):
            xs = variables(row)
            ys = call(row, xs)
            for y in ys:
                y.forward()
        close(values(ys), row.expected, 16 * digits, 16 * digits, row)


@over(lambda row: row.random)
def test_random(row):
    """Random outputs pass the check of their row, and depend on the seed alone."""

    def draw(seed):
        """Draws with this seed."""
        nn.seed(seed)
        ys = call(row, variables(row))
        ys[0].forward()
        return values(ys)[0]

    first, again, other = draw(1), draw(1), draw(2)
    expected = row.reference(*row.inputs, **row.args)
    expected(np.asarray(first, float))
    np.testing.assert_array_equal(first, again, err_msg=str(row))
    is_drawn = first.max(initial=0) > first.min(initial=0) and 0 not in (row.args.get("p"), row.args.get("prob"))
    if first.size > 100 and "seed" not in row.args and is_drawn:
        assert (first != other).any(), row


def test_each_node_keeps_its_random_numbers():
    """Two nodes with the same arguments are distinct: the gradient graph uses the patches of its own node."""
    x = nn.Variable.from_numpy_array(np.full((3, 2, 8, 8), 1e3), need_grad=True)
    a, b = F.random_erase(x), F.random_erase(x)
    loss = F.sum(a) + F.sum(b * 2)
    (g,) = nn.grad([loss], [x])
    nn.forward_all([a, b, loss, g])
    np.testing.assert_array_equal(g.d, (a.d == 1e3) + 2 * (b.d == 1e3))


@pytest.mark.parametrize("only_index", [False, True])
def test_eager_outputs_of_other_types_are_allocated(only_index):
    values = np.random.default_rng(0).permutation(1001).astype(np.float32)
    x = nn.Variable.from_numpy_array(values, need_grad=True)
    with nn.auto_forward():
        found = [F.sort(x, with_index=True, only_index=only_index) for _ in range(50)]
        tops = [F.max(x, with_index=True, only_index=only_index) for _ in range(50)]
    for each in found:
        index = each if only_index else each[1]
        assert index.data.dtype == np.int64
        assert index.d.tolist() == np.argsort(values).tolist()
    for each in tops:
        index = each if only_index else each[1]
        assert index.data.dtype == np.int64
        assert index.d == values.argmax()
