"""`autodiff` frees the values that it has differentiated through, except values that other functions still read."""

import itertools

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

STEPS = {
    "tanh": F.tanh,
    "softmax": F.softmax,
    "relu": F.relu,
    "sine": F.sin,
    "square": lambda h: h * h,
    "reshape": lambda h: F.reshape(h, (24,) if h.ndim == 2 else (4, 6)),
    "reshape twice": lambda h: F.reshape(F.reshape(h, (2, 12)), (4, 6)),
    "dropout": lambda h: F.dropout(h, 0.3, seed=3),
    "assigned": lambda h: assigned(h),
}
"""Functions of an array of 24 elements, by name. Chains of two or three must give the same gradients in each way."""


def assigned(h):
    """Halves `h` and assigns to its first element in place."""
    y = h * 0.5
    y[0] = 1.0
    return y


def positive_leaf(*shape, need_grad=True):
    """Returns a variable of values between 0.1 and 1, drawn with the number of axes as seed."""
    values = np.random.RandomState(len(shape)).uniform(0.1, 1, shape).astype(np.float32)
    return nn.Variable.from_numpy_array(values, need_grad=need_grad)


WAYS = {
    "backward": lambda x, losses: [autodiff.backward([y]) for y in losses],
    "together": lambda x, losses: autodiff.backward(losses),
    "grad": lambda x, losses: [x.g.__iadd__(autodiff.grad([y], [x])[0].d) for y in losses],
}
"""Ways to add the gradients of losses to `x.g` with freed memory. Each takes `x` and the losses."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_functions_that_share_memory(way, skip, hooked):
    """Chains whose functions share memory give the same gradients with and without `retain_graph`."""
    for names in itertools.product(STEPS, repeat=2 if hooked else 3):
        found = []
        for retain in (True, False):
            x = positive_leaf(4, 6)
            x.g = 0
            h = first = STEPS[names[0]](x)
            if hooked:
                first.register_hook(lambda g: g)
            for name in names[1:]:
                h = STEPS[name](h)
            loss = F.sum(h * h) + (F.sum(F.sin(first)) if skip else 0)
            del h, first
            for _ in range(2):
                loss.forward()
                if retain:
                    autodiff.backward([loss], retain_graph=True)
                else:
                    WAYS[way](x, [loss])
            found.append(x.g.copy())
        np.testing.assert_array_equal(*found, err_msg=str(names))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("owner", ["tanh", "softmax", "sine"])
@pytest.mark.parametrize("second", ["whole", "from the reshaped"])
def test_another_loss_still_reads_the_memory(owner, held, second):
    """The gradient of a second loss is right down to the value that both read.

    Above it the first has freed the graph.
    """
    x = positive_leaf(4, 6)
    r = F.reshape(STEPS[owner](x), (24,))
    first, other = F.sum(F.sin(r) * r), F.sum(F.exp(r) * r)
    nn.forward_all([first, other])
    values = r.d.copy()
    middle = r if second != "whole" or held else None
    if middle is None:
        del r
    autodiff.backward([first])
    if second == "whole":
        with pytest.raises(autodiff.GraphFreedError):
            autodiff.backward([other])
        return
    (g,) = autodiff.grad([other], [middle])
    np.testing.assert_allclose(g.d, np.exp(values) * (1 + values), 1e-5)


@pytest.mark.parametrize("back", [lambda y: autodiff.backward([y]), lambda y: y.backward(clear_buffer=True)])
def test_a_state_carried_over_to_the_next_run(back):
    """Gradients are right if a leaf shares its array with the last state, which the next run reads."""

    def gradients(back):
        """Returns the gradients of two runs, the second from the last state."""
        x, w, h0 = positive_leaf(2, 3, need_grad=False), positive_leaf(3, 3), nn.Variable((2, 3))
        h0.d = 0
        h = F.tanh(F.affine(x, w) + h0)
        loss = F.sum(h * h)
        h0.data = h.data
        for _ in range(4):
            loss.forward()
            w.grad.zero()
            back(loss)
            yield w.g.copy()

    for a, b in zip(gradients(lambda y: y.backward()), gradients(back), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_an_unlinked_copy_keeps_its_values(keep, hooked):
    """Freeing the graph does not clear values that an unlinked copy shares."""
    x = positive_leaf(2, 3)
    h = F.tanh(x)
    if hooked:
        x.register_hook(lambda g: g)
    u = h.get_unlinked_variable(need_grad=True)
    first, other = F.sum(F.sin(h) * h), F.sum(F.cos(u) * u)
    if not keep:
        del h
    for _ in range(3):
        nn.forward_all([first])
        values = u.d.copy()
        other.forward()
        x.grad.zero()
        autodiff.backward([first])
        np.testing.assert_array_equal(u.d, values)
        (g,) = autodiff.grad([other], [u])
        np.testing.assert_allclose(g.d, np.cos(values) - values * np.sin(values), 1e-5)


def test_a_leaf_without_a_handle_that_is_reshaped():
    """A leaf that only the graph holds, reshaped in place, keeps its values over several runs."""
    w = positive_leaf(6)
    values = np.arange(6, dtype=np.float32)
    inner = F.reshape(nn.Variable.from_numpy_array(values, need_grad=True), (2, 3))
    loss = F.sum(inner * inner * F.reshape(w, (2, 3)))
    del inner
    for _ in range(3):
        loss.forward()
        w.grad.zero()
        autodiff.backward([loss])
        np.testing.assert_array_equal(w.g, values**2)


def test_memory_that_is_shared_goes_with_the_function_that_made_it():
    """A differentiation frees memory that reshapes share in place."""
    x = positive_leaf(64, 64)
    h = x
    for _ in range(6):
        h = F.reshape(F.tanh(h), (64, 64) if h.ndim == 1 else (4096,))
    loss = F.sum(h * h)
    del h
    nn.clear_memory_cache()
    loss.forward()
    before = nn.memory_stats()["live"]
    autodiff.backward([loss])
    assert nn.memory_stats()["live"] < before - 5 * x.size * 4
