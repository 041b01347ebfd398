"""Outputs that alias inputs: results equal those with separate memory."""

import numpy as np
import pytest
from support import UnaryFunction, certain, close, over

import kinnor as nn
import kinnor.functions as F
from kinnor import _core
from kinnor.utils.dlpack import from_dlpack


def arrays(row):
    """Returns the inputs of a row as arrays. Real numbers become float32, the compute type, so that an output can alias
    them.
    """
    kept = [x if x is None or x.dtype.kind != "f" else x.astype(np.float32) for x in row.inputs]
    return [x if x is None else nn.NdArray.from_numpy_array(x) for x in kept]


def apply(row, xs, outputs=None):
    """Runs the operation of a row on arrays, into `outputs` if given. Returns its outputs."""
    given = {} if outputs is None else {"outputs": outputs}
    y = getattr(_core.functions, row.name)(*xs, **row.args, **given)
    return y if isinstance(y, tuple) else (y,)


def keeps_its_inputs(row):
    """True if the operation has inputs, changes none of them, and is not random."""
    return (
        certain(row)
        and any(x is not None for x in row.inputs)
        and not row.writes
        and hasattr(_core.functions, row.name)
    )


def pairs(row, expected):
    """Yields the pairs (output number, input number) that can share memory."""
    for o, y in enumerate(expected):
        for i, x in enumerate(row.inputs):
            if x is not None and x.dtype.kind == "f" and x.size == y.size > 1 and y.dtype.kind == "f":
                yield o, i


def only(n, o, array):
    """Returns a list of `n` outputs to write to, with `array` at index `o`."""
    return [array if k == o else None for k in range(n)]


@over(keeps_its_inputs)
def test_an_output_may_be_an_input(row):
    """Eagerly, and in a graph that runs twice, which covers functions that are fused."""
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


@over(keeps_its_inputs)
def test_an_output_may_overlap_an_input(row):
    """Two arrays share one buffer, with an offset of some elements."""
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
"""A random square matrix."""


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
    """In-place operators of an array and a part of itself use the old values of the part."""
    a = nn.NdArray.from_numpy_array(A[:size, :size])
    operate(a, a.narrow(0, row % size, 1))
    np.testing.assert_allclose(a.data, expected(A[:size, :size], A[:size, :size][[row]]), 1e-6)


def test_a_part_may_be_written_from_the_whole():
    """A sum over an array may be written to a row of it."""
    a = nn.NdArray.from_numpy_array(A)
    F.sum(a, axis=0, keepdims=True, outputs=[a.narrow(0, 3, 1)])
    np.testing.assert_allclose(a.data[3], A.sum(0), 1e-4, 1e-5)
    np.testing.assert_array_equal(np.delete(a.data, 3, 0), np.delete(A, 3, 0))


def test_fused_functions_handle_overlapping_memory():
    """A fused pass is right if its output overlaps its input by an offset."""
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
    """Results are right if arrays of a cached plan are made to alias."""
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


def test_a_gradient_may_share_memory_with_its_inputs():
    """Backward is right if gradient arrays alias each other."""
    x, w = nn.Variable.from_numpy_array(A, need_grad=True), nn.Variable.from_numpy_array(A + 1)
    y = F.transpose(x, (1, 0))
    y.forward()
    x.g = A
    y.backward(x.grad)
    np.testing.assert_array_equal(x.g, A + A.T)

    h = F.identity(x)
    y = F.transpose(h, (1, 0))
    z = y * w
    h.grad = y.grad
    z.forward()
    x.grad.zero()
    z.backward(nn.NdArray.from_numpy_array(A))
    np.testing.assert_allclose(x.g, (A * (A + 1)).T, 1e-6)

    h = F.identity(x)
    y = F.batch_matmul(h, h)
    h.grad = h.data
    y.forward()
    x.grad.zero()
    y.backward(1)
    ones = np.ones_like(A)
    np.testing.assert_allclose(x.g, ones @ A.T + A.T @ ones, 1e-4, 1e-4)


def test_a_users_function_may_write_where_it_reads():
    """A user's function whose output aliases its input reads the old values."""

    class Reversed(UnaryFunction):
        """Writes its input in reverse order, element by element."""

        def forward_impl(self, inputs, outputs):
            """Writes element by element, so that an output in the memory of the input would be wrong."""
            for i in range(len(inputs[0].d)):
                outputs[0].d[i] = inputs[0].d[-1 - i]

        def backward_impl(self, inputs, outputs, propagate_down, accum):
            """Is never called."""
            raise NotImplementedError

    a = nn.NdArray.from_numpy_array(np.arange(5, dtype=np.float32))
    x = nn.Variable((5,))
    x.data = a
    y = Reversed()(x)
    y.data = a
    y.forward()
    assert a.data.tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("operate", "other"),
    [
        (F.add2, A[:1]),
        (F.add2, A[:, :1]),
        (lambda a, b, **how: F.sub2(b, a, **how), A[:, :1]),
        (lambda a, b, **how: F.prelu(a, b, **how), A[0]),
        (lambda a, b, **how: F.bool_fill(a, b, 5.0, **how), np.float32(A[:1] > 0)),
        (lambda a, b, **how: F.sin(a, **how), A),
    ],
    ids=["row", "column", "column first", "prelu", "bool_fill", "unary"],
)
def test_elements_are_overwritten_in_place_on_all_threads(operate, other):
    """In-place results keep their address."""
    large = np.tile(A, (60, 1))
    other = np.tile(other, (60, 1)) if other.shape[:1] == A.shape[:1] and other.ndim == 2 else other
    a, b = nn.NdArray.from_numpy_array(large), nn.NdArray.from_numpy_array(other)
    expected = operate(a, b).data
    place = a.data.ctypes.data
    operate(a, b, outputs=[a])
    np.testing.assert_array_equal(a.data, expected)
    assert a.data.ctypes.data == place


def test_a_gradient_that_reads_overwritten_values_raises():
    x = nn.Variable.from_numpy_array(A, need_grad=True)
    y = F.sin(x, outputs=[x.data])
    y.forward()
    with pytest.warns(UserWarning, match="backward of sin: expected the values of its forward run, but input 0"):
        y.backward()
