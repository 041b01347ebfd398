"""`nn.grad`: gradients as graphs that run on demand, as in NNabla."""

import numpy as np
import pytest
from support import leaf, run

import kinnor as nn
import kinnor.functions as F

pytestmark = pytest.mark.usefixtures("mode")


def test_one_or_several():
    """`nn.grad` accepts one variable or a list, and returns a list of gradients by each input."""
    x, w = leaf(1, 2), leaf(3, 4)
    y, z = x * w, x * x
    (alone,) = nn.grad(y, x)
    both = nn.grad([y, z], [x, w])
    assert isinstance(both, list)
    run(alone, *both)
    assert alone.d.tolist() == [3, 4]
    assert [g.d.tolist() for g in both] == [[5, 8], [1, 2]]
    assert not (x.has_grad or w.has_grad)


def test_nothing_runs_before_forward(mode):
    """`nn.grad` of a static graph only builds functions; they run on request."""
    x = leaf(1, 2)
    (g,) = nn.grad(x * x * x, x)
    assert g.parent is not None
    if mode == "static":
        for value in (1, 2):
            x.d = value
            g.forward()
            assert g.d.tolist() == [3 * value**2] * 2


@pytest.mark.parametrize(
    "seed",
    [
        10,
        np.array([10.0, 10.0]),
        np.float32(10),
        nn.NdArray.from_numpy_array(np.full(2, 10.0)),
        leaf(10, 10),
        [None],
        [10.0],
    ],
)
def test_accepted_initial_gradients(seed):
    """`nn.grad` takes numbers, arrays and variables as initial gradients, one or a list."""
    x = leaf(1, 2)
    (g,) = nn.grad([x * 3], [x], seed)
    run(g)
    assert g.d.tolist() == ([3, 3] if isinstance(seed, list) and seed[0] is None else [30, 30])


def test_unreachable_inputs_get_zeros_of_their_shape():
    x, other = leaf(1, 2), leaf(1, 2, 3)
    constant = nn.Variable.from_numpy_array(np.ones((2, 2), np.float32))
    found = nn.grad(x * 2, [other, constant])
    run(*found)
    assert [g.d.tolist() for g in found] == [[0] * 3, [[0, 0]] * 2]


def test_outputs_are_made_persistent():
    """`nn.grad` makes its outputs persistent, unless `persistent_outputs` says otherwise."""
    x = leaf(1, 2)
    y, z = x * 2, x * 3
    nn.grad([y, z], [x])
    assert y.persistent and z.persistent
    nn.grad([y, z], [x], persistent_outputs=[True, False])
    assert y.persistent and not z.persistent


def test_results_can_be_bound_to_gradients():
    """With `bind_grad_output`, running the results writes the gradients of the inputs."""
    x, w = leaf(1, 2), leaf(3, 4)
    found = nn.grad(x * w, [x, w], bind_grad_output=True)
    run(*found)
    assert (x.g.tolist(), w.g.tolist()) == ([3, 4], [1, 2])
    assert x.grad == found[0].data


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda x, y: (3, x), "outputs"),
        (lambda x, y: (y, [3]), "inputs to be Variables, got int"),
        (lambda x, y: (x, x), "without parent"),
        (lambda x, y: ([y], [x], [1, 2]), "expected 1 grad_outputs, got 2"),
        (lambda x, y: (y, x, np.ones(3)), r"shape \(2,\), got \(3,\)"),
        (lambda x, y: (y, x, ["a"]), "got str"),
        (lambda x, y: (y, x, None, [True, False]), "persistent_outputs for 1 outputs, got 2"),
    ],
)
def test_refused_arguments(arguments, words):
    x = leaf(1, 2)
    with pytest.raises(ValueError, match=words):
        nn.grad(*arguments(x, x * 2))


def test_any_order():
    """`nn.grad` of `nn.grad` gives derivatives of the first five orders."""
    x = leaf(0.5)
    y = F.exp(x * 2)
    for order in range(1, 6):
        (y,) = nn.grad(y, x)
        run(y)
        assert y.item() == pytest.approx(2**order * np.exp(1), rel=1e-5)


def test_a_gradient_in_a_loss():
    """A gradient penalty, differentiated by the kernels."""
    x, w = leaf(1, 2), leaf(3, 4)
    y = F.sum(x * x * w)
    (g,) = nn.grad(y, x)
    loss = F.sum(g * g)
    run(loss)
    loss.backward()
    np.testing.assert_allclose(x.g, 8 * np.array([9, 32]))
    np.testing.assert_allclose(w.g, 8 * np.array([3, 16]))
