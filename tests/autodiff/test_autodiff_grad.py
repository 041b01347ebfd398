"""`autodiff.grad`: results and errors, batches, edges, and gradients with a graph."""

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff
from kinnor.autodiff.graph import AccumulateGrad, GradientEdge, Node, get_gradient_edge

pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_touches_no_gradient(create_graph):
    """`autodiff.grad` returns gradients and writes none to variables."""
    x, w = leaf(1, 2), leaf(3, 4)
    h = x * w
    y = run(F.sum(h * h))
    gx, gh, gy = autodiff.grad(y, [x, h, y], create_graph=create_graph)
    assert (gx.d.tolist(), gh.d.tolist(), gy.d.tolist()) == ([18, 64], [6, 16], 1)
    assert all(g.requires_grad == create_graph for g in (gx, gh, gy))
    assert not (x.has_grad or w.has_grad or h.has_grad or y.has_grad)


def test_grad_returns_a_tuple():
    """`autodiff.grad` of one input returns a tuple; an input may be given twice."""
    x = leaf(2)
    y = run(x * x)
    found = autodiff.grad(y, x, retain_graph=True)
    assert isinstance(found, tuple) and len(found) == 1
    first, second = autodiff.grad(y, [x, x])
    assert first.d.tolist() == second.d.tolist() == [4]


@pytest.mark.parametrize("create_graph", [False, True])
def test_inputs_that_are_not_used(create_graph):
    """An input that no root depends on is an error, None or zeros, as the options say."""
    x, unused = leaf(2), leaf(3, 4)
    y = run(x * x)
    options = {"retain_graph": True, "create_graph": create_graph}
    for refused in ({}, {"allow_unused": False}):
        with pytest.raises(RuntimeError, match="Variable at index 1 appears to not have been used in the graph"):
            autodiff.grad(y, [x, unused], create_graph=create_graph, **refused)
    gx, none = autodiff.grad(y, [x, unused], allow_unused=True, **options)
    assert gx.d.tolist() == [4] and none is None
    gx, zeros = autodiff.grad(y, [x, unused], materialize_grads=True, **options)
    assert zeros.d.tolist() == [0, 0] and zeros.requires_grad == create_graph
    with pytest.raises(ValueError, match="allow_unused"):
        autodiff.grad(y, x, allow_unused=False, materialize_grads=True)
    with pytest.raises(RuntimeError, match="GradientEdge"):
        autodiff.grad(y, [x, get_gradient_edge(run(unused * 2))], materialize_grads=True)


def test_arguments_of_grad_that_are_refused():
    """Empty inputs and inputs without grad are errors; `only_inputs=False` warns."""
    x, c = leaf(2), leaf(3, need_grad=False)
    y = run(x * c)
    with pytest.raises(RuntimeError, match=r"`inputs` argument to grad\(\) cannot be empty"):
        autodiff.grad(y, [])
    with pytest.raises(RuntimeError, match="One of the differentiated Variables does not require grad"):
        autodiff.grad(y, [x, c])
    with pytest.warns(FutureWarning, match="only_inputs"):
        autodiff.grad(y, x, only_inputs=False)


def test_batches_of_gradients_to_start_from():
    """`is_grads_batched` gives one row of gradients for each given initial gradient. Wrong shapes are refused."""
    x = leaf(1, 2)
    y, z = run(x * x, F.sum(x * x * x))
    (rows,) = autodiff.grad(y, x, np.eye(2), is_grads_batched=True, retain_graph=True)
    assert rows.d.tolist() == [[2, 0], [0, 4]]
    (rows,) = autodiff.grad([y, z], x, [np.eye(2), np.array([1, 10])], is_grads_batched=True)
    assert rows.d.tolist() == [[5, 12], [30, 124]]
    y = run(x * x)
    for wrong in (np.eye(3), np.ones(2), np.ones(()), None, [np.eye(2), np.eye(2)]):
        with pytest.raises(RuntimeError, match="expected"):
            autodiff.grad(y, x, wrong, is_grads_batched=True)


def test_ten_derivatives_of_a_sine():
    """Ten nested derivatives of `sin` have full precision."""
    with nn.context_scope(nn.Context(["cpu:double"])):
        x = nn.Variable.from_numpy_array(np.array(0.7), need_grad=True)
        y = run(F.sin(x))
        for n in range(1, 11):
            (y,) = autodiff.grad(y, x, create_graph=True)
            assert y.item() == pytest.approx(np.sin(0.7 + n * np.pi / 2), rel=1e-12)


def test_a_gradient_of_a_static_graph_is_computed_again_with_it(mode):
    if mode == "dynamic":
        return
    x = leaf(1, 2)
    y = run(F.sum(x * x * x))
    (g,) = autodiff.grad(y, x, create_graph=True)
    assert g.d.tolist() == [3, 12]
    x.d = [2, 3]
    g.forward()
    assert g.d.tolist() == [12, 27]


def test_create_graph_works_under_no_grad():
    """`create_graph` takes precedence over an enclosing `no_grad`."""
    x = leaf(3)
    y = run(x * x * x)
    with autodiff.no_grad():
        (g,) = autodiff.grad(y, x, create_graph=True)
        (second,) = autodiff.grad(g, x)
        assert not autodiff.is_grad_enabled()
    assert (g.d.tolist(), second.d.tolist()) == ([27], [18])


def test_edges():
    """Gradient edges show the graph, and stand for variables as outputs and inputs of `grad` and `backward`."""
    x, c = leaf(1, 2), leaf(3, 4, need_grad=False)
    h = x * c
    y = run(F.sum(h * h))
    edge = get_gradient_edge(y)
    assert isinstance(edge, GradientEdge) and isinstance(edge.node, Node) and edge.output_nr == 0
    assert (edge.node.name(), edge.node) == ("Sum", Node(y.parent))
    ((square, _),) = edge.node.next_functions
    assert square.name() == "Mul2" and square.next_functions == ((Node(h.parent), 0), (Node(h.parent), 0))
    assert Node(h.parent).next_functions == ((AccumulateGrad(x), 0), (None, 0))
    of_x, of_h = get_gradient_edge(x), get_gradient_edge(h)
    assert of_x.node.name() == "AccumulateGrad" and of_x.node.next_functions == () and of_x == get_gradient_edge(x)
    gx, gh = autodiff.grad(y, [of_x, of_h], retain_graph=True)
    assert (gx.d.tolist(), gh.d.tolist()) == ([18, 64], [6, 16])
    del h
    (gh,) = autodiff.grad(edge, of_h, 1, retain_graph=True)
    assert gh.d.tolist() == [6, 16]
    autodiff.backward(edge, 2, inputs=of_x)
    assert x.g.tolist() == [36, 128]
    with pytest.raises(RuntimeError, match="leaves"):
        autodiff.backward(y, inputs=of_h)
    with pytest.raises(RuntimeError, match="GradientEdge at index 0"):
        autodiff.backward(edge)
    with pytest.raises(RuntimeError, match="requires grad"):
        get_gradient_edge(c)
    with pytest.raises(TypeError, match="Variable"):
        get_gradient_edge(3)


def test_an_edge_of_a_second_output():
    """An edge to the second output of a function replaces the variable, which may be dropped."""
    x = leaf(1, 2)
    first, second = F.split(x, axis=0)
    run(first, second)
    edge = get_gradient_edge(second)
    assert edge.output_nr == 1
    del second
    (g,) = autodiff.grad(edge, x, 5)
    assert g.d.tolist() == [0, 5]
