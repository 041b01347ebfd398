"""`autodiff` and `Variable.backward` give the same bits for every operation, in static graphs and eagerly."""

from support import DOUBLE, call, close, differentiate, loss_of, over, same, smooth, variables

import kinnor as nn
from kinnor import autodiff


def loss_and_inputs(row, at_once):
    """Returns a loss of the row's operation that has run, and the variables to differentiate by."""
    xs = variables(row)
    with nn.auto_forward(at_once):
        loss = loss_of(row, call(row, xs))
    if not at_once:
        loss.forward()
    return loss, [xs[i] for i in row.wanted]


@over(smooth)
def test_backward_adds_the_gradients_of_the_kernels(row):
    with nn.context_scope(DOUBLE):
        expected = differentiate(row)
        for at_once in (False, True):
            loss, xs = loss_and_inputs(row, at_once)
            autodiff.backward(loss, retain_graph=True)
            same([x.g for x in xs], expected, row)
            for x in xs:
                x.grad = None
            autodiff.backward(loss)
            same([x.g for x in xs], expected, row)


@over(smooth)
def test_grad_returns_the_gradients_of_the_kernels(row):
    with nn.context_scope(DOUBLE):
        expected = differentiate(row)
        loss, xs = loss_and_inputs(row, True)
        found = autodiff.grad(loss, xs, retain_graph=True, materialize_grads=True)
        same([g.d for g in found], expected, row)
        one_by_one = [autodiff.grad(loss, x, retain_graph=True, materialize_grads=True)[0].d for x in xs]
        same(one_by_one, expected, row)


@over(smooth)
def test_gradients_with_a_graph(row):
    """`autodiff.grad` with `create_graph` gives the gradients of the kernels up to rounding."""
    with nn.context_scope(DOUBLE):
        expected = differentiate(row)
        for at_once in (False, True):
            loss, xs = loss_and_inputs(row, at_once)
            found = autodiff.grad(loss, xs, create_graph=True, materialize_grads=True)
            close([g.d for g in found], expected, 1e-8, 1e-10, row)
            assert all(g.requires_grad for g in found)
