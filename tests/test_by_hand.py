"""Function handles called by hand: what does not fit is refused before a kernel sees it."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F


def leaf(*shape):
    return nn.Variable.from_numpy_array(np.ones(shape, np.float32), need_grad=True)


def test_a_function_runs_on_variables_of_ours():
    f = F.mul2(leaf(2), leaf(2)).parent
    x, y, z = leaf(3), leaf(3), nn.Variable()
    x.d = [1, 2, 3]
    f.setup([x, y], [z])
    f.forward([x, y], [z])
    assert z.d.tolist() == [1, 2, 3]
    z.g = 2
    f.backward([x, y], [z], [False, False])
    assert (x.g.tolist(), y.g.tolist()) == ([2, 2, 2], [2, 4, 6])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_another_number_of_inputs_is_refused(n):
    f = F.mul2(leaf(2), leaf(2)).parent
    inputs, outputs = [leaf(2) for _ in range(n)], [leaf(2)]
    for call in (
        lambda: f(*inputs),
        lambda: f.setup(inputs, outputs),
        lambda: f.forward(inputs, outputs),
        lambda: f.backward(inputs, outputs),
    ):
        with pytest.raises(TypeError, match=f"mul2: expected 2 inputs, got {n}"):
            call()


def test_a_list_and_inputs_left_out_are_counted():
    joined = F.concatenate(leaf(2), leaf(2), axis=0).parent
    assert joined(leaf(1), leaf(2), leaf(3)).shape == (6,)
    with pytest.raises(TypeError, match="expected 1 inputs, got 0"):
        joined()
    plain = F.affine(leaf(1, 2), leaf(2, 3)).parent
    assert plain(leaf(4, 2), leaf(2, 3)).shape == (4, 3)
    with pytest.raises(TypeError, match="affine"):
        plain(leaf(4, 2), leaf(2, 3), leaf(3))


def test_shapes_that_do_not_fit_never_reach_a_kernel():
    f = F.exp(leaf(2)).parent
    for x, y in ((leaf(2), leaf(1 << 20)), (leaf(1 << 20), leaf(2)), (leaf(2), leaf(2, 1))):
        with pytest.raises(nn.ShapeError):
            f.backward([x], [y])
    with pytest.raises(nn.ShapeError):
        f.backward([leaf(2)], [])


def test_outputs_of_other_functions_are_not_looked_at():
    x = leaf(2, 3)
    first, second = F.slice(x, stop=(1, 3)), F.slice(x, start=(1, 0))
    first.g, second.g, x.g = 2, 5, 7
    first.parent.backward([x], [first, second], [False])
    assert x.g.tolist() == [[2, 2, 2], [0, 0, 0]]
    with pytest.raises(nn.ShapeError):
        first.parent.backward([x], [leaf(1 << 20), first])


def test_a_gradient_is_added_where_accum_says_nothing():
    x, y = leaf(2), leaf(2)
    z = F.mul2(x, y)
    z.forward()
    z.g, x.g, y.g = 1, 10, 10
    z.parent.backward([x, y], [z], [False])
    assert (x.g.tolist(), y.g.tolist()) == ([1, 1], [11, 11])
    z.parent.backward([x, y], [z], [False, False, True, True])
    assert (x.g.tolist(), y.g.tolist()) == ([1, 1], [1, 1])


@pytest.mark.parametrize("shape", [(2**62, 4), (2**40, 2**40), (-1, 2**63 - 1, 2)])
def test_a_shape_beyond_all_memory_is_refused(shape):
    with pytest.raises((nn.ShapeError, MemoryError)):
        F.reshape(leaf(2), shape)
