"""Direct calls of function handles (`setup`, `forward`, `backward`): invalid calls are refused before a kernel runs."""

import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F


def ones(*shape):
    """Returns a variable of ones that requires a gradient."""
    return nn.Variable.from_numpy_array(np.ones(shape, np.float32), need_grad=True)


def test_a_function_runs_on_the_callers_variables():
    """`setup`, `forward` and `backward` of a function take any variables."""
    f = F.mul2(ones(2), ones(2)).parent
    x, y, z = ones(3), ones(3), nn.Variable()
    x.d = [1, 2, 3]
    f.setup([x, y], [z])
    f.forward([x, y], [z])
    assert z.d.tolist() == [1, 2, 3]
    z.g = 2
    f.backward([x, y], [z], [False, False])
    assert (x.g.tolist(), y.g.tolist()) == ([2, 2, 2], [2, 4, 6])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_another_number_of_inputs_is_refused(n):
    """Direct calls of a function with a wrong number of inputs raise TypeError."""
    f = F.mul2(ones(2), ones(2)).parent
    inputs, outputs = [ones(2) for _ in range(n)], [ones(2)]
    for call in (
        lambda: f(*inputs),
        lambda: f.setup(inputs, outputs),
        lambda: f.forward(inputs, outputs),
        lambda: f.backward(inputs, outputs),
    ):
        with pytest.raises(TypeError, match=f"mul2: expected 2 inputs, got {n}"):
            call()


def test_a_list_and_inputs_left_out_are_counted():
    """A function handle accepts as many inputs as its function allows."""
    joined = F.concatenate(ones(2), ones(2), axis=0).parent
    assert joined(ones(1), ones(2), ones(3)).shape == (6,)
    with pytest.raises(TypeError, match="expected 1 inputs, got 0"):
        joined()
    plain = F.affine(ones(1, 2), ones(2, 3)).parent
    assert plain(ones(4, 2), ones(2, 3)).shape == (4, 3)
    with pytest.raises(TypeError, match="affine"):
        plain(ones(4, 2), ones(2, 3), ones(3))


def test_shapes_that_do_not_fit_never_reach_a_kernel():
    """Direct backward calls with arrays of other shapes are refused."""
    f = F.exp(ones(2)).parent
    for x, y in ((ones(2), ones(1 << 20)), (ones(1 << 20), ones(2)), (ones(2), ones(2, 1))):
        with pytest.raises(nn.ShapeError):
            f.backward([x], [y])
    with pytest.raises(nn.ShapeError):
        f.backward([ones(2)], [])


def test_outputs_of_other_functions_are_ignored():
    """A direct backward call reads only the first output, and checks shapes of the others."""
    x = ones(2, 3)
    first, second = F.slice(x, stop=(1, 3)), F.slice(x, start=(1, 0))
    first.g, second.g, x.g = 2, 5, 7
    first.parent.backward([x], [first, second], [False])
    assert x.g.tolist() == [[2, 2, 2], [0, 0, 0]]
    with pytest.raises(nn.ShapeError):
        first.parent.backward([x], [ones(1 << 20), first])


def test_gradients_add_up_by_default():
    """A direct backward call adds to gradients, unless `accum` or `propagate_down` says otherwise."""
    x, y = ones(2), ones(2)
    z = F.mul2(x, y)
    z.forward()
    z.g, x.g, y.g = 1, 10, 10
    z.parent.backward([x, y], [z], [False])
    assert (x.g.tolist(), y.g.tolist()) == ([1, 1], [11, 11])
    z.parent.backward([x, y], [z], [False, False, True, True])
    assert (x.g.tolist(), y.g.tolist()) == ([1, 1], [1, 1])


@pytest.mark.parametrize("shape", [(2**62, 4), (2**40, 2**40), (-1, 2**63 - 1, 2)])
def test_a_shape_larger_than_memory_is_refused(shape):
    with pytest.raises((nn.ShapeError, MemoryError)):
        F.reshape(ones(2), shape)


def test_sizes_that_overflow_are_refused():
    """Shapes whose number of elements overflows are refused."""
    one, empty = nn.NdArray((1, 1)), nn.NdArray((0,))
    with pytest.raises(MemoryError):
        F.broadcast(one, (2**32, 2**32), outputs=[empty])
    assert empty.shape == (0,)
    with pytest.raises(nn.ShapeError, match=r"shape: expected axes of less than 2\^60 elements together"):
        nn.Variable((0, 2**60))
    assert nn.Variable((0, 2**40)).d.shape == (0, 2**40)


def sample(*shape):
    """Returns a leaf of random values in [0, 1)."""
    return nn.Variable.from_numpy_array(np.random.RandomState(3).rand(*shape).astype(np.float32), need_grad=True)


STATEFUL = {
    "sort": (F.sort, (4, 8), (8, 40)),
    "max": (lambda x: F.max(x, axis=1), (4, 8), (40, 40)),
    "max_pooling": (lambda x: F.max_pooling(x, (2, 2)), (1, 1, 8, 8), (1, 4, 4, 4)),
    "max_pooling of more": (lambda x: F.max_pooling(x, (2, 2)), (1, 4, 4, 4), (1, 1, 8, 8)),
    "dropout": (lambda x: F.dropout(x, seed=7), (4, 8), (80, 80)),
    "layer_normalization": (lambda x: F.layer_normalization(x, None, None), (4, 8), (4, 80)),
}
"""By name: a function whose forward saves state for backward, its input shape, and a shape for a direct call."""


@pytest.mark.parametrize("name", STATEFUL)
def test_a_direct_run_does_not_change_the_gradient_of_the_graph(name):
    make, shape, other = STATEFUL[name]
    x = sample(*shape)
    expected = None
    for by_hand in (False, True):
        y = make(x)
        loss = F.sum(y * y)
        loss.forward()
        if by_hand:
            for f in y.parent, loss.parent.inputs[0].parent.inputs[0].parent:
                others = [sample(*other), *(sample(*v.shape) for v in f.inputs[1:])]
                if len(others) == 1:
                    f.forward(others, [nn.Variable() for _ in f.outputs])
        x.grad.zero()
        loss.backward()
        if expected is None:
            expected = x.g.copy()
    np.testing.assert_array_equal(x.g, expected)


def test_a_direct_gradient_belongs_to_the_direct_forward_run():
    """The graph's run and a direct run save separate states."""
    x, a = sample(2, 3), sample(3, 5)
    y, b = F.max(x, axis=1), nn.Variable()
    y.forward()
    f = y.parent
    f.forward([a], [b])
    b.g, y.g, x.g, a.g = 1, 1, 0, 0
    f.backward([a], [b])
    f.backward([x], [y])
    for v in x, a:
        np.testing.assert_array_equal(v.g, v.d == v.d.max(axis=1, keepdims=True))
    z = nn.Variable((4,))
    with pytest.raises(nn.GraphError, match="call forward"):
        f.backward([sample(4, 9)], [z])


def test_a_direct_recomputation_draws_the_numbers_of_the_graph():
    x = sample(5, 5)
    y, z = F.dropout(x), nn.Variable()
    for _ in range(3):
        y.forward()
        for _ in range(2):
            y.parent.recompute([x], [z])
            np.testing.assert_array_equal(y.d, z.d)


def test_recomputation_without_random_numbers_needs_no_key():
    x, h, w = sample(3, 2, 4), sample(1, 1, 2, 5), sample(1, 3, 5, 9)
    q = sample(2, 3, 4)
    for outputs, inputs in ((F.gru(x, h, w), [x, h, w]), ([F.scaled_dot_product_attention(q, q, q)], [q, q, q])):
        f, y = outputs[0].parent, [nn.Variable() for _ in outputs]
        assert not f.need_setup_recompute(0)
        f.forward(inputs, y)
        first = [v.d.copy() for v in y]
        f.recompute(inputs, y)
        for a, b in zip(first, y, strict=True):
            np.testing.assert_array_equal(a, b.d)
    later = sample(1, 1, 3, 5, 10)
    drops = F.gru(x, sample(2, 1, 2, 5), w, later, num_layers=2, dropout=0.5)[0].parent
    assert drops.need_setup_recompute(0)


def test_a_direct_recomputation_draws_the_numbers_of_the_later_run():
    """`recompute` repeats the last run, direct or not."""
    x = sample(5, 5)
    y, z = F.dropout(x, seed=4), nn.Variable()
    y.forward()
    y.parent.forward([x], [z])
    by_hand = z.d.copy()
    y.parent.recompute([x], [z])
    np.testing.assert_array_equal(z.d, by_hand)
    y.forward()
    y.parent.recompute([x], [z])
    np.testing.assert_array_equal(z.d, y.d)


def test_a_graph_run_directly_counts_as_run():
    """After all functions have run by direct calls, backward is accepted."""
    x = sample(4, 6)
    y = F.sum(F.max(x, axis=1))
    for shape in ((4, 6), (3, 2)):
        x.reset_shape(shape, True)
        x.d = np.random.RandomState(0).rand(*shape)
        y.visit(lambda f: f.forward(f.inputs, f.outputs))
        x.grad.zero()
        y.backward()
        np.testing.assert_array_equal(x.g, x.d == x.d.max(axis=1, keepdims=True))


def test_no_direct_run_within_a_run():
    """A hook cannot call a function directly while a run uses that function."""
    x = sample(4, 8)
    y = F.sum(F.sort(x))
    f = y.parent.inputs[0].parent
    refused = []

    def hook(_):
        """Checks that direct calls of `f` are refused while it runs in a graph."""
        for run in (
            lambda: f.setup([x], [nn.Variable()]),
            lambda: f.forward([sample(8, 40)], [nn.Variable()]),
            lambda: f.recompute([sample(8, 40)], [nn.Variable()]),
            lambda: f.backward([sample(2)], [sample(2)]),
        ):
            with pytest.raises(nn.GraphError, match="another run of it is under way"):
                run()
            refused.append(run)

    y.forward(function_pre_hook=hook)
    y.backward(function_pre_hook=hook)
    assert len(refused) == 16
    assert (x.g == 1).all()
    f.forward([x], [nn.Variable()])


def test_no_direct_run_during_a_run_of_another_thread():
    x = sample(300, 300)
    y = F.sort(x)
    y.forward()
    loss = F.sum(y)
    outputs = [(sample(2, 3), nn.Variable()), (sample(400, 40), nn.Variable())]
    done = threading.Event()
    failures = []

    def run():
        """Runs the graph in a loop, and counts the runs that are refused."""
        try:
            for _ in range(60):
                try:
                    loss.forward()
                    loss.backward()
                except nn.GraphError as error:
                    failures.append(str(error))
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        for a, b in outputs:
            try:
                y.parent.forward([a], [b])
            except nn.GraphError as error:
                failures.append(str(error))
            else:
                np.testing.assert_array_equal(b.d, np.sort(a.d, axis=-1))
    thread.join()
    assert all("another run of it is under way" in text for text in failures)
    loss.forward()
    x.grad.zero()
    loss.backward()
    assert (x.g == 1).all()


def test_an_output_that_is_an_input():
    """An input may be the output of a direct call if the shapes are equal. Two outputs may not be one variable."""
    for make, shape in (
        (lambda x: F.sum(x, axis=1), (10, 10)),
        (lambda x: F.broadcast(x, (100, 100)), (1, 1)),
        (lambda x: F.transpose(x, (1, 0)), (3, 5)),
        (lambda x: F.pad(x, (100, 100)), (5,)),
        (lambda x: F.tile(x, (100,)), (5,)),
        (lambda x: F.slice(x, start=(1,)), (5,)),
    ):
        x = sample(*shape)
        before = x.d.copy()
        with pytest.raises(nn.ShapeError, match="which is not input 0"):
            make(x).parent.forward([x], [x])
        with pytest.raises(nn.ShapeError, match="which is not input 0"):
            make(x).parent.forward([x], [x.get_unlinked_variable()])
        np.testing.assert_array_equal(x.d, before)
    x = sample(5)
    expected = np.sin(x.d)
    F.sin(x).parent.forward([x], [x])
    np.testing.assert_array_equal(x.d, expected)
    z = nn.Variable()
    with pytest.raises(nn.GraphError, match="expected different outputs"):
        F.max(sample(2, 3), axis=1, with_index=True)[0].parent.forward([sample(2, 3)], [z, z])
