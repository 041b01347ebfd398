"""Every operation matches its NumPy reference, and its gradients match numeric derivatives."""

import numpy as np
from cases import arithmetic, elementwise
from support import (
    DOUBLE,
    call,
    certain,
    clear_gradients,
    close,
    differences,
    differentiate,
    factors,
    gradients,
    loss_of,
    over,
    put,
    smooth,
    values,
    variables,
)

import kinnor as nn
import kinnor.functions as F


@over(certain)
def test_forward(row):
    """In float32, outputs equal the reference for any type of the leaves. Indices are integers."""
    ys = call(row, variables(row))
    for y in ys:
        y.forward()
    close(values(ys), row.expected, row.tolerance, row.tolerance, row)
    for y, expected in zip(ys, row.expected, strict=True):
        computed = np.float64 if row.shares else np.float32
        whole = expected.dtype if expected.dtype == np.uint8 else np.int64
        assert y.d.dtype == (whole if expected.dtype.kind in "iu" else computed), row


@over(certain)
def test_forward_in_double(row):
    """In double precision, outputs equal the reference."""
    with nn.context_scope(DOUBLE):
        ys = call(row, variables(row))
        for y in ys:
            y.forward()
    close(values(ys), row.expected, 1e-12, 1e-13, row)


@over(lambda row: smooth(row) and row.gradient is None)
def test_gradient_is_derivative(row):
    """In double precision, gradients equal finite differences."""
    with nn.context_scope(DOUBLE):
        xs = variables(row)
        loss = loss_of(row, call(row, xs))

        def value(arrays):
            """Returns the loss for these inputs."""
            put(xs, arrays)
            loss.forward()
            return float(loss.d)

        expected = differences(value, row)
        close(differentiate(row), expected, 1e-6, 1e-8, row)


@over(lambda row: smooth(row) and row.gradient is not None)
def test_gradient_that_the_operation_defines_itself(row):
    """Gradients that differ from the derivative equal the reference that the row gives."""
    with nn.context_scope(DOUBLE):
        expected = row.gradient(*factors(row), *row.inputs)
        close(differentiate(row), expected, 1e-12, 1e-13, row)


@over(smooth)
def test_the_graph_gradient_equals_the_kernel_gradient(row):
    with nn.context_scope(DOUBLE):
        xs = variables(row)
        found = nn.grad([loss_of(row, call(row, xs))], [xs[i] for i in row.wanted])
        nn.forward_all(found)
        close(values(found), differentiate(row), 1e-11, 1e-12, row)


@over(lambda row: smooth(row) and row.gradient is None and row.second)
def test_second_derivative(row):
    """Second derivatives equal finite differences of first derivatives along random directions."""
    with nn.context_scope(DOUBLE):
        random = np.random.RandomState(5)
        directions = [np.asarray(random.uniform(0.5, 1.5, row.inputs[i].shape)) for i in row.wanted]
        xs = variables(row)
        loss = loss_of(row, call(row, xs))

        def slope(arrays):
            """Returns the derivative along the directions."""
            put(xs, arrays)
            loss.forward()
            clear_gradients(xs)
            loss.backward()
            return sum(float((g * d).sum()) for g, d in zip(gradients(row, xs), directions, strict=True))

        expected = differences(slope, row)
        xs = variables(row)
        first = nn.grad([loss_of(row, call(row, xs))], [xs[i] for i in row.wanted])
        along = F.add_n(*(F.sum(g * nn.Variable.from_numpy_array(d)) for g, d in zip(first, directions, strict=True)))
        along.forward()
        clear_gradients(xs)
        along.backward()
        close(gradients(row, xs), expected, 1e-6, 1e-7, row)


@over(smooth)
def test_gradient_in_float(row):
    """In single precision, gradients equal those in double precision to the tolerance of the row."""
    single = differentiate(row)
    with nn.context_scope(DOUBLE):
        double = differentiate(row)
    close(single, double, 10 * row.tolerance, 10 * row.tolerance, row)


ELEMENTWISE = {row.name for row in arithmetic.ROWS + elementwise.ROWS}
"""Names of the elementwise operations."""


@over(lambda row: smooth(row) and row.gradient is None and row.name in ELEMENTWISE)
def test_third_derivative(row):
    """Third derivatives equal finite differences of second derivatives along two random directions."""
    with nn.context_scope(DOUBLE):
        random = np.random.RandomState(7)
        xs = variables(row)
        wanted, value = [xs[i] for i in row.wanted], loss_of(row, call(row, xs))
        for _ in range(2):
            directions = [nn.Variable.from_numpy_array(random.uniform(0.5, 1.5, x.shape)) for x in wanted]
            found = nn.grad([value], wanted)
            value = F.add_n(*(F.sum(g * d) for g, d in zip(found, directions, strict=True)))

        def second(arrays):
            """Returns the second derivative along the directions."""
            put(xs, arrays)
            value.forward()
            return float(value.d)

        expected = differences(second, row)
        put(xs, row.inputs)
        found = nn.grad([value], wanted)
        nn.forward_all(found)
        close(values(found), expected, 1e-5, 1e-6, row)
