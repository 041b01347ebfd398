"""Changed shapes under a built graph: a forward run sets it up again, a backward run is refused."""

import collections

import numpy as np
import pytest
from cases import all_rows
from support import call, leaf

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import autodiff

N = 1 << 16
"""Elements of a large array, whose kernel would write far beyond a small one."""
AGAIN = r"run forward\(\) again|call forward\(\) first"
"""The advice in the error of a changed shape."""


def world():
    """Returns the leaf, an intermediate result and the loss of a small graph."""
    x = nn.Variable.from_numpy_array(np.ones(N, np.float32), need_grad=True)
    h = F.tanh(F.exp(x))
    return x, h, F.sum(F.sin(h))


def loss(x):
    """Returns the loss of `world` for the leaf's values `x`, in NumPy."""
    return np.sin(np.tanh(np.exp(np.asarray(x, np.float64)))).sum()


@pytest.mark.parametrize("shape", [(4,), (N, 2), (2, N // 2)])
@pytest.mark.parametrize("how", ["leaf", "unlinked", "intermediate", "output of the function"])
@pytest.mark.parametrize("clear", [False, True])
def test_backward_refuses_and_forward_sets_up_again(shape, how, clear):
    x, h, y = world()
    y.forward(clear_no_need_grad=clear)
    v = {
        "leaf": lambda: x,
        "unlinked": x.get_unlinked_variable,
        "intermediate": lambda: h,
        "output of the function": lambda: h.parent.outputs[0],
    }[how]()
    v.reset_shape(shape, True)
    for _ in range(2):
        with pytest.raises(nn.GraphError, match=AGAIN):
            y.backward(clear_buffer=clear)
    x.d = 0.25
    y.forward(clear_no_need_grad=clear)
    n = int(np.prod(x.shape))
    assert h.shape == x.shape == (shape if how in ("leaf", "unlinked") else (N,))
    np.testing.assert_allclose(y.d, n * loss(0.25), rtol=1e-4)
    x.grad.zero()
    y.backward(clear_buffer=clear)
    t = np.tanh(np.exp(0.25))
    assert x.g.shape == x.shape
    np.testing.assert_allclose(x.g, np.cos(t) * (1 - t * t) * np.exp(0.25), rtol=1e-4)


def test_kept_plans_do_not_outlive_shapes():
    """A cached plan is not used after the shape of an array in the graph changed."""
    x, h, y = world()
    for shape in ((4,), (N,), (3, 5), (2, 2, 2)):
        for _ in range(3):
            y.forward()
            y.backward()
        h.reset_shape(shape, True)
        x.get_unlinked_variable().reset_shape(shape, True)
        x.d = 0.5
        y.forward()
        np.testing.assert_allclose(y.d, np.prod(shape) * loss(0.5), rtol=1e-4)


def test_the_error_names_the_changed_array():
    """Backward after a change of shape fails with the name and shapes of the array."""
    x = leaf(*range(8))
    x.name = "pixels"
    y = F.sin(x)
    y.forward()
    x.reset_shape((2,), True)
    text = r"backward of sin: .* which made \(8,\), but input 0 is variable 'pixels' of shape \(2,\) now; run forward"
    with pytest.raises(nn.GraphError, match=text):
        y.backward()
    y.forward()
    y.reset_shape((5,), True)
    with pytest.raises(nn.GraphError, match=r"backward of sin: .* output 0 is of shape \(5,\) now"):
        y.backward()
    y.forward()
    assert y.shape == (2,)


def test_dynamic_graphs_refuse():
    """Backward of an eager graph is refused after a shape has changed."""
    for change in (lambda x, h: x, lambda x, h: h, lambda x, h: x.get_unlinked_variable()):
        for differentiate in (lambda y: y.backward(), autodiff.backward):
            with nn.auto_forward():
                x, h, y = world()
            change(x, h).reset_shape((4,), True)
            with pytest.raises((nn.GraphError, nn.ModifiedError)):
                differentiate(y)


def test_under_a_budget_and_with_values_to_compute_again():
    """Changed shapes are refused and set up again, also with a budget and with recomputation."""
    x, _, y = world()
    y.forward(memory_budget=1 << 30)
    x.reset_shape((4,), True)
    with pytest.raises(nn.GraphError, match=AGAIN):
        y.backward()
    y.forward(memory_budget=1 << 30)
    y.backward()
    assert x.g.shape == (4,)
    with nn.recompute():
        x, _, y = world()
    y.forward(clear_no_need_grad=True)
    x.reset_shape((4,), True)
    with pytest.raises(nn.GraphError, match=AGAIN):
        y.backward()
    with nn.auto_forward(), nn.memory_budget(1 << 30):
        x, _, y = world()
    x.reset_shape((4,), True)
    with pytest.raises(nn.GraphError, match=AGAIN):
        y.backward()


def test_several_ends():
    """Graphs with common parts and several outputs take over a new shape of their leaf in one run."""
    x = leaf(*range(100))
    h = F.sin(x)
    a, b, c = F.cos(h), F.exp(h), F.mul_scalar(h.get_unlinked_variable(), 2)
    nn.forward_all([c, a, b])
    a.reset_shape((3,), True)
    h.reset_shape((7, 7), True)
    nn.forward_all([c, a, b])
    assert a.shape == b.shape == c.shape == (100,)
    x.reset_shape((3,), True)
    x.d = 1
    nn.forward_all([c, a, b])
    assert a.shape == b.shape == c.shape == (3,)
    np.testing.assert_allclose(b.d, np.exp(np.sin(1)), rtol=1e-5)
    # One end has run since the change, the other has not.
    x.reset_shape((4,), True)
    a.forward()
    a.backward()
    with pytest.raises(nn.GraphError, match=AGAIN):
        b.backward()


def test_a_graph_of_gradients():
    """A gradient graph computes the same result after a shape was changed by the program."""
    x, h, y = world()
    (g,) = nn.grad([y], [x])
    g.forward()
    before = g.d.copy()
    h.reset_shape((1,), True)
    x.data.fill(1)
    g.forward()
    np.testing.assert_array_equal(g.d, before)


def test_parameters():
    """A changed shape of a parameter must fit the other parameters. Then the graph takes it over."""
    x = leaf(*np.ones(8)).reshape((2, 4))
    y = PF.affine(x, 3)
    z = PF.prelu(y, shared=False)
    z.forward()
    nn.get_parameters()["affine/W"].reset_shape((2, 2), True)
    with pytest.raises(nn.ShapeError, match="affine"):
        z.forward()
    with pytest.raises(nn.GraphError, match=AGAIN):
        z.backward()
    nn.get_parameters()["affine/W"].reset_shape((4, 5), True)
    with pytest.raises(nn.ShapeError):  # the bias and the slopes still have three outputs
        z.forward()
    for name in ("affine/b", "prelu/slope"):
        nn.get_parameters()[name].reset_shape((5,), True)
    z.forward()
    assert z.shape == y.shape == (2, 5)
    z.backward()
    x = leaf(*np.ones(8)).reshape((2, 4))
    y = PF.batch_normalization(x)
    y.forward()
    for v in nn.get_parameters(grad_only=False).values():
        v.reset_shape((1, 1), True)
    with pytest.raises(nn.ShapeError):
        y.forward()


@pytest.mark.parametrize("size", [1, 2 * N])
@pytest.mark.parametrize("warm", [0, 3])
def test_hooks_of_forward(size, warm):
    """A hook that changes shapes during the run does no harm. The run is refused if its results become invalid."""
    for which, at in (("h", "Tanh"), ("h", "Exp"), ("h", "Sin"), ("y", "Exp"), ("x", "Exp"), ("x", "Sin")):
        x, h, y = world()
        for _ in range(warm):
            y.forward()
            y.backward()
        v = {"x": x, "h": h, "y": y}[which]

        def hook(f, v=v, at=at):
            """Changes the shape of `v` at the function of type `at`."""
            if f.info.type_name == at:
                v.reset_shape((size,), True)

        if which == "x":
            y.forward(function_pre_hook=hook)
            np.testing.assert_allclose(y.d, N * loss(1), rtol=1e-4)
        else:
            with pytest.raises(nn.GraphError, match=AGAIN):
                y.forward(function_pre_hook=hook)
        with pytest.raises(nn.GraphError, match=AGAIN):
            y.backward()
        x.d = 1
        y.forward()
        np.testing.assert_allclose(y.d, x.size * loss(1), rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2 * N])
@pytest.mark.parametrize("which", ["x", "h"])
def test_hooks_of_backward(which, size):
    """A hook that changes a shape during a backward run makes the run raise."""
    x, h, y = world()
    y.forward()
    v = {"x": x, "h": h}[which]
    x.grad.zero()

    def hook(f):
        """Changes the shape of `v` at `Sin`."""
        if f.info.type_name == "Sin":
            v.reset_shape((size,), True)

    with pytest.raises(nn.GraphError, match=AGAIN):
        y.backward(function_pre_hook=hook)
    assert x.g.shape == x.shape
    x.d = 1
    y.forward()
    np.testing.assert_allclose(y.d, x.size * loss(1), rtol=1e-4)
    y.backward()
    assert x.g.shape == x.shape


def test_hooks_on_gradients():
    """A gradient hook that changes a leaf's shape makes the run raise, and the gradient is zero."""
    for v_of in (lambda x, h: x, lambda x, h: h):
        for differentiate in (lambda y: y.backward(), autodiff.backward):
            x, h, y = world()
            v = v_of(x, h)
            v.register_hook(lambda g, x=x: x.reset_shape((2 * N,), True))
            y.forward()
            with pytest.raises(nn.Error):
                differentiate(y)
            assert x.g.shape == (2 * N,) and (x.g == 0).all()


def few_rows():
    """Yields the first rows of every operation in the table."""
    seen = collections.Counter()
    for row in all_rows():
        seen[row.name] += 1
        if seen[row.name] <= 3:
            yield row


def variable(x, need_grad):
    """Returns an input of a row as a variable, None for an omitted one."""
    if x is None:
        return None
    return nn.Variable.from_numpy_array(x.astype(np.float32) if x.dtype.kind == "f" else x, need_grad=need_grad)


def built(row, inputs=None):
    """Builds a graph of one operation. Returns its inputs and outputs."""
    xs = [variable(x, i in row.wanted) for i, x in enumerate(row.inputs if inputs is None else inputs)]
    return xs, call(row, xs)


def halved(shape):
    """Halves each length, down to 1."""
    return tuple(max(1, n // 2) for n in shape)


def enlarged(shape):
    """Makes each length larger."""
    return tuple(3 * n + 1 for n in shape)


@pytest.mark.parametrize("another", [halved, enlarged])
def test_every_operation_with_an_input_of_another_shape(another):
    refused = 0
    for row in few_rows():
        xs, ys = built(row)
        x = next((x for x in xs if x is not None), None)
        if x is None or another(x.shape) == x.shape or row.writes:
            continue
        nn.forward_all(ys)
        x.reset_shape(another(x.shape), True)
        for y in ys:
            if y.parent.need_grad:
                with pytest.raises(nn.GraphError, match=AGAIN):
                    y.backward()
                refused += 1
        try:
            nn.forward_all(ys)
        except nn.Error:
            continue
        for y in ys:
            y.backward()
        try:
            _, fresh = built(row, [v if v is None else v.d.copy() for v in xs])
            nn.forward_all(fresh)
        except nn.Error:
            continue  # arguments that depend on shapes still fit the first ones
        if not row.random and row.name != "slice":
            for y, z in zip(ys, fresh, strict=True):
                assert y.shape == z.shape, row
                np.testing.assert_array_equal(y.d, z.d, err_msg=str(row))
    assert refused > 300


@pytest.mark.parametrize("warm", [0, 1, 3])
def test_every_operation_with_outputs_of_other_shapes(warm):
    for row in few_rows():
        if row.writes:
            continue
        _, ys = built(row)
        for _ in range(warm):
            nn.forward_all(ys)
        shapes = [y.shape for y in ys]
        for y in ys:
            y.reset_shape(halved(y.shape), True)
        nn.forward_all(ys)
        assert [y.shape for y in ys] == shapes, row
        if not row.random:
            for y, expected in zip(ys, row.expected, strict=True):
                np.testing.assert_allclose(y.d, expected, rtol=1e-3, atol=1e-3, err_msg=str(row))
