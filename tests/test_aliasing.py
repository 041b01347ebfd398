"""Outputs in the memory of inputs: what is computed is what would be computed into memory of its own."""

import numpy as np
import pytest
from bed import certain, close, over

import kinnor as nn
import kinnor.functions as F
from kinnor import _core
from kinnor.utils.dlpack import from_dlpack


def arrays(row):
    """The inputs as arrays; real numbers in float32, so that an output may have their memory."""
    kept = [x if x is None or x.dtype.kind != "f" else x.astype(np.float32) for x in row.inputs]
    return [x if x is None else nn.NdArray.from_numpy_array(x) for x in kept]


def apply(row, xs, outputs=None):
    """The outputs of the operation itself."""
    given = {} if outputs is None else {"outputs": outputs}
    y = getattr(_core.functions, row.name)(*xs, **row.args, **given)
    return y if isinstance(y, tuple) else (y,)


def plain(row):
    """Whether it is an operation of fixed outputs, which changes none of its inputs."""
    return certain(row) and not row.writes and hasattr(_core.functions, row.name)


def pairs(row, expected):
    """The outputs and inputs that may have each other's memory."""
    for o, y in enumerate(expected):
        for i, x in enumerate(row.inputs):
            if x is not None and x.dtype.kind == "f" and x.size == y.size > 1 and y.dtype.kind == "f":
                yield o, i


def only(n, o, array):
    """A list of outputs to write to with one entry."""
    return [array if k == o else None for k in range(n)]


@over(plain)
def test_an_output_may_be_an_input(row):
    """At once and in a graph, which runs twice, so that steps that share one pass are met as well."""
    expected = [y.data.copy() for y in apply(row, arrays(row))]
    for o, i in pairs(row, expected):
        xs = arrays(row)
        close(
            [y.data for y in apply(row, xs, only(len(expected), o, xs[i]))][o : o + 1], expected[o : o + 1], 0, 0, row
        )
        xs = arrays(row)
        variables = [x if x is None else nn.Variable(x.shape) for x in xs]
        for v, x in zip(variables, xs, strict=True):
            if x is not None:
                v.data = x
        ys = apply(row, variables, only(len(expected), o, xs[i]))
        for _ in range(2):
            xs[i].copy_from(arrays(row)[i])
            ys[o].forward()
            close([ys[o].d], expected[o : o + 1], 0, 0, row)


@over(plain)
def test_an_output_may_overlap_an_input(row):
    """Two arrays over one buffer, the one some elements after the other."""
    expected = [y.data.copy() for y in apply(row, arrays(row))]
    for o, i in pairs(row, expected):
        n = expected[o].size
        for x_at, y_at in ((0, 1), (1, 0), (0, n // 2), (n // 2, 0), (0, 0)):
            buffer = np.full(2 * n, 7, np.float32)
            xs = arrays(row)
            values = xs[i].data.ravel()
            buffer[x_at : x_at + n] = values
            xs[i] = from_dlpack(buffer[x_at : x_at + n].reshape(xs[i].shape))
            y = from_dlpack(buffer[y_at : y_at + n].reshape(expected[o].shape))
            apply(row, xs, only(len(expected), o, y))
            np.testing.assert_allclose(buffer[y_at : y_at + n].reshape(expected[o].shape), expected[o], 1e-6, 1e-7)
            rest = np.r_[buffer[: min(x_at, y_at)], buffer[max(x_at, y_at) + n :]]
            assert np.all(rest == 7), row


A = np.random.RandomState(0).randn(70, 70).astype(np.float32)


@pytest.mark.parametrize("size", [5, 70])
@pytest.mark.parametrize(
    ("operate", "expected"),
    [
        (lambda a, b: a.__iadd__(b), lambda a, b: a + b),
        (lambda a, b: a.__isub__(b), lambda a, b: a - b),
        (lambda a, b: a.__imul__(b), lambda a, b: a * b),
        (lambda a, b: a.__itruediv__(b), lambda a, b: a / b),
    ],
)
@pytest.mark.parametrize("row", [0, 1, -1])
def test_in_place_operators_of_an_array_and_a_part_of_it(size, operate, expected, row):
    a = nn.NdArray.from_numpy_array(A[:size, :size])
    operate(a, a.narrow(0, row % size, 1))
    np.testing.assert_allclose(a.data, expected(A[:size, :size], A[:size, :size][[row]]), 1e-6)


def test_a_part_may_be_written_from_the_whole():
    a = nn.NdArray.from_numpy_array(A)
    F.sum(a, axis=0, keepdims=True, outputs=[a.narrow(0, 3, 1)])
    np.testing.assert_allclose(a.data[3], A.sum(0), 1e-4, 1e-5)
    np.testing.assert_array_equal(np.delete(a.data, 3, 0), np.delete(A, 3, 0))


def test_functions_that_run_as_one_pass_keep_apart_what_overlaps():
    buffer = np.zeros(5001, np.float32)
    start = np.linspace(-1, 1, 5000, dtype=np.float32)
    x = nn.Variable((5000,))
    x.data = from_dlpack(buffer[:5000])
    h = F.tanh(F.sin(x))
    y = F.exp(h, outputs=[from_dlpack(buffer[1:])])
    for _ in range(4):
        buffer[:5000] = start
        y.forward(clear_no_need_grad=True)
        np.testing.assert_allclose(buffer[1:], np.exp(np.tanh(np.sin(start))), 1e-5)


def test_memory_may_come_to_be_shared_after_the_first_run():
    x, y = nn.Variable.from_numpy_array(A), nn.Variable((70, 70))
    y = F.transpose(x, (1, 0))
    for _ in range(2):
        y.forward()
        np.testing.assert_array_equal(y.d, A.T)
    own = y.data
    y.data = x.data
    y.forward()
    np.testing.assert_array_equal(x.d, A.T)
    y.data = own
    y.forward()
    np.testing.assert_array_equal(y.d, A)
    shared = np.array(A)
    from_dlpack(shared, x.data)
    from_dlpack(shared, y.data)
    y.forward()
    np.testing.assert_array_equal(shared, A.T)


def test_gradients_may_share_memory():
    """That of the input with that of the output, with what is read, and as a part of it."""
    w = A + 1
    for share in ("gy", "seed", "data"):
        x = nn.Variable.from_numpy_array(A, need_grad=True)
        h = F.identity(x)
        y = F.transpose(h, (1, 0)) * nn.Variable.from_numpy_array(w)
        y.forward()
        seed = nn.NdArray.from_numpy_array(A)
        if share == "seed":
            x.grad = seed
            seed = x.grad
        elif share == "gy":
            y.parent.inputs[0].grad = x.grad
        else:
            seed = x.data
        if share != "seed":
            x.grad.zero()
        y.backward(seed)
        expected = (A * w).T + (A if share == "seed" else 0)
        np.testing.assert_allclose(x.g, expected, 1e-6, err_msg=share)


def test_a_users_function_may_write_where_it_reads():
    class Reversed(nn.function.PythonFunction):
        @property
        def name(self):
            return "Reversed"

        def min_outputs(self):
            return 1

        def setup_impl(self, inputs, outputs):
            outputs[0].reset_shape(inputs[0].shape, True)

        def forward_impl(self, inputs, outputs):
            for i in range(len(inputs[0].d)):
                outputs[0].d[i] = inputs[0].d[-1 - i]

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            raise NotImplementedError

    a = nn.NdArray.from_numpy_array(np.arange(5, dtype=np.float32))
    x = nn.Variable((5,))
    x.data = a
    y = Reversed()(x)
    y.data = a
    y.forward()
    assert a.data.tolist() == [4, 3, 2, 1, 0]
