"""Attention over many tiles: values, gradients, masks, dropout, memory; and multi-head attention."""

import numpy as np
import pytest
from scipy import special
from support import DOUBLE, assert_rule_agrees

import kinnor as nn
import kinnor.functions as F

SIZES = [(2, 1, 1, 3, 2), (2, 65, 257, 8, 5), (1, 200, 300, 33, 40), (3, 64, 256, 16, 16), (1, 130, 40, 4, 4)]
"""Arguments of `inputs`."""


def inputs(heads, queries, keys, width, depth):
    """Returns random queries, keys and values."""
    r = np.random.RandomState(queries + keys)
    return r.randn(heads, queries, width), r.randn(heads, keys, width), r.randn(heads, keys, depth)


def reference(q, k, v, mask=None, causal=False):
    """Attention in NumPy."""
    products = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + (0 if mask is None else mask)
    if causal:
        products = np.where(np.tri(*products.shape[-2:], dtype=bool), products, -np.inf)
    return special.softmax(products, -1) @ v


def variables(arrays):
    """Returns a variable that requires a gradient for each array."""
    return [nn.Variable.from_numpy_array(x, need_grad=True) for x in arrays]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_tiled_attention_equals_the_reference(size, causal):
    """The gradient of the kernel equals the gradient of the graph rule, which materializes all weights."""
    arrays = inputs(*size)
    mask = np.random.RandomState(1).randn(size[1], 1) if causal else np.random.RandomState(1).randn(1, size[2])
    mask[0, 0] = 0
    with nn.context_scope(DOUBLE):
        xs = variables([*arrays, mask])
        y = F.scaled_dot_product_attention(*xs, causal=causal)
        loss = F.sum(F.sin(y))
        loss.forward()
        np.testing.assert_allclose(y.d, reference(*arrays, mask, causal), 1e-10, 1e-12)
        assert_rule_agrees(loss, xs)


def test_masked_keys_do_not_change_the_result():
    q, k, v = inputs(2, 70, 600, 8, 8)
    mask = np.zeros((2, 1, 600))
    mask[0, 0, :300], mask[1, 0, 100:] = -np.inf, -np.inf
    xs = variables([q, k, v])
    y = F.scaled_dot_product_attention(*xs, nn.Variable.from_numpy_array(mask))
    y.forward()
    np.testing.assert_allclose(y.d[0], reference(q[0], k[0, 300:], v[0, 300:]), 1e-4, 1e-5)
    np.testing.assert_allclose(y.d[1], reference(q[1], k[1, :100], v[1, :100]), 1e-4, 1e-5)
    for x in xs:
        x.grad.zero()
    F.sum(y**2).forward()
    y.backward(1.0)
    assert not np.any(xs[1].g[0, :300]) and not np.any(xs[2].g[1, 100:])
    all_hidden = F.scaled_dot_product_attention(*xs, nn.Variable.from_numpy_array(np.full((1, 1), -np.inf)))
    all_hidden.forward()
    assert not all_hidden.d.any()


def test_dropout_and_its_gradient_use_the_same_mask():
    """Eagerly, so that the graph rule belongs to the same run as the kernel."""
    arrays = inputs(2, 70, 300, 8, 6)
    with nn.context_scope(DOUBLE), nn.auto_forward():
        xs = variables(arrays)
        loss = F.sum(F.sin(F.scaled_dot_product_attention(*xs, dropout=0.4)))
        rule = nn.grad([loss], xs)
        for x in xs:
            x.grad.zero()
        loss.backward()
        for x, expected in zip(xs, rule, strict=True):
            np.testing.assert_allclose(x.g, expected.d, 1e-8, 1e-10)


def test_dropout_keeps_the_mean():
    """Dropout of attention weights keeps the mean output, and draws a new mask in each run."""
    arrays = np.zeros((1, 40, 4)), np.zeros((1, 500, 4)), np.ones((1, 500, 1))
    y = F.scaled_dot_product_attention(*map(nn.Variable.from_numpy_array, arrays), dropout=0.4)
    y.forward()
    assert abs(y.d.mean() - 1) < 0.02
    assert 0.01 < y.d.std() < 0.1
    first = y.d.copy()
    y.forward()
    assert not np.array_equal(y.d, first)


def test_dropout_in_backward_uses_the_mask_of_forward():
    """Checked by finite differences: a fixed seed draws the same mask in each run."""
    q, k, v = inputs(1, 3, 70, 4, 2)
    with nn.context_scope(DOUBLE):

        def loss(v):
            """Returns the variables and a loss of attention with dropout and a fixed seed."""
            xs = variables([q, k, v])
            y = F.sum(F.sin(F.scaled_dot_product_attention(*xs, dropout=0.3, seed=5)))
            y.forward()
            return xs, y

        xs, y = loss(v)
        for x in xs:
            x.grad.zero()
        y.backward()
        direction = np.random.RandomState(2).randn(*v.shape)
        step = 1e-5 * direction
        slope = (loss(v + step)[1].d - loss(v - step)[1].d) / 2e-5
        np.testing.assert_allclose((xs[2].g * direction).sum(), slope, 1e-6)


def test_memory_does_not_grow_with_the_product_of_lengths():
    n = 4096
    xs = variables([np.zeros((1, n, 8), np.float32)] * 3)
    y = F.scaled_dot_product_attention(*xs, causal=True)
    nn.clear_memory_cache()
    nn.reset_peak_memory()
    before = nn.memory_stats()["live"]
    y.forward()
    y.backward(1.0)
    assert nn.memory_stats()["peak"] - before < 4 * n * n / 8


def heads(query, key, value, n, *weights, bias_k=None, bias_v=None, additive=None, padding=None):
    """Returns multi-head attention with `n` heads in NumPy, by NNabla's formula."""
    q, k, v = (x @ w + b for x, w, b in zip((query, key, value), weights[:3], weights[4:7], strict=True))
    if bias_k is not None:
        k, v = (np.concatenate([x, np.broadcast_to(b, (1, *x.shape[1:]))]) for x, b in ((k, bias_k), (v, bias_v)))
        additive = None if additive is None else np.pad(additive, ((0, 0), (0, 1)))
        padding = None if padding is None else np.pad(padding, ((0, 0), (0, 1)))
    q, k, v = (x.reshape(*x.shape[:2], n, -1).transpose(1, 2, 0, 3) for x in (q, k, v))
    products = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    products = products + (0 if additive is None else additive)
    if padding is not None:
        products = np.where(padding[:, None, None] != 0, -np.inf, products)
    w = special.softmax(products, -1)
    y = (w @ v).transpose(2, 0, 1, 3).reshape(*query.shape[:2], -1)
    return y @ weights[3] + weights[7], w.reshape(-1, *w.shape[2:])


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    "given", [(), ("bias_k", "bias_v"), ("additive", "padding"), ("bias_k", "bias_v", "additive", "padding")]
)
def test_heads(given, at_once):
    """`multi_head_attention` equals the NumPy reference, with and without masks and biases."""
    r = np.random.RandomState(0)
    x = [r.randn(5, 2, 6), r.randn(7, 2, 4), r.randn(7, 2, 3)]
    weights = [r.randn(*s) for s in ((6, 8), (4, 8), (3, 6), (6, 5), (8,), (8,), (6,), (5,))]
    padding = np.zeros((2, 7))
    padding[0, 5:] = padding[1, 3] = 1
    more = {"bias_k": r.randn(8), "bias_v": r.randn(6), "additive": r.randn(5, 7), "padding": padding}
    more = {k: v for k, v in more.items() if k in given}
    expected = heads(*x, 2, *weights, **more)
    names = {
        "bias_k": "attn_bias_k",
        "bias_v": "attn_bias_v",
        "additive": "additive_mask",
        "padding": "key_padding_mask",
    }
    v = nn.Variable.from_numpy_array
    with nn.auto_forward(at_once), nn.context_scope(DOUBLE):
        xs, ws = map(v, x), [v(w, need_grad=True) for w in weights]
        found = F.multi_head_attention(*xs, 2, *ws, **{names[k]: v(a) for k, a in more.items()})
        nn.forward_all(found)
        for y, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(y.d, e, 1e-9, 1e-11)
        ws[0].grad.zero()
        found[0].backward(1.0)
        assert np.abs(ws[0].g).max() > 0


def test_invalid_arguments_are_refused():
    """Attention refuses shapes, masks and arguments that do not fit."""
    q, k, v = (nn.Variable(s) for s in ((2, 3, 4), (2, 5, 4), (2, 5, 6)))
    for bad in ((q, k, nn.Variable((2, 4, 6))), (q, nn.Variable((2, 5, 3)), v), (q, nn.Variable((1, 5, 4)), v)):
        with pytest.raises(nn.ShapeError, match="scaled_dot_product_attention: expected query, key and value"):
            F.scaled_dot_product_attention(*bad)
    with pytest.raises(nn.ShapeError, match="a mask whose shape broadcasts"):
        F.scaled_dot_product_attention(q, k, v, nn.Variable((3, 4)))
    with pytest.raises(nn.ArgumentError, match="dropout"):
        F.scaled_dot_product_attention(q, k, v, dropout=1.0)
    w = nn.Variable((4, 9))
    with pytest.raises(nn.ShapeError, match="a multiple of 2 heads"):
        F.multi_head_attention(q, k, v, 2, w, w, w, w)


@pytest.mark.parametrize("kind", ["float", "double", "half", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_heads_have_the_same_bits_static_and_eager(kind, dropout, masked):
    """Values, weights, gradients and dropout masks of `multi_head_attention` have the same bits, static and eager."""
    found = []
    r = np.random.RandomState(0)
    shapes = ((6, 2, 16), (16, 16), (16, 16), (16, 16), (16, 16))
    values = [r.randn(*shape).astype(np.float32) for shape in shapes]
    mask = np.triu(np.full((6, 6), -np.inf, np.float32), 1)
    for at_once in (False, True):
        for arrays in (False, True):
            nn.seed(3)
            v = [nn.Variable.from_numpy_array(value, need_grad=True) for value in values]
            more = {"additive_mask": nn.Variable.from_numpy_array(mask)} if masked else {}
            with nn.auto_forward(at_once), nn.context_scope(nn.Context([f"cpu:{kind}"])):
                if arrays:
                    more = {name: m.data for name, m in more.items()}
                    data = [x.data for x in v]
                    y, w = F.multi_head_attention(data[0], data[0], data[0], 4, *data[1:], dropout=dropout, **more)
                    found.append([np.array(y.data), np.array(w.data)])
                    continue
                y, w = F.multi_head_attention(v[0], v[0], v[0], 4, *v[1:], dropout=dropout, **more)
                nn.forward_all([y, w]) if not at_once else None
                for x in v:
                    x.grad.zero()
                y.backward(1.0)
            found.append([y.d.copy(), w.d.copy(), *(x.g.copy() for x in v)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=False):
            np.testing.assert_array_equal(a, b)
