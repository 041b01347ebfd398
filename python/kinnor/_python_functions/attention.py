"""Multi-head attention, by affine maps and `scaled_dot_product_attention`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from .. import _core
from .._check import arrays, count, is_truth
from .._core import NdArray, ShapeError, Variable

__all__ = ["multi_head_attention"]

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", Variable, NdArray)

f = _core.functions

INPUTS = (
    "query",
    "q_weight",
    "k_weight",
    "v_weight",
    "attn_bias_k",
    "attn_bias_v",
    "additive_mask",
    "key_padding_mask",
)
"""Names of the inputs that are read before an operation checks them."""


def multi_head_attention(
    query: T,
    key: T,
    value: T,
    num_heads: int,
    q_weight: T,
    k_weight: T,
    v_weight: T,
    out_weight: T,
    q_bias: T | None = None,
    k_bias: T | None = None,
    v_bias: T | None = None,
    out_bias: T | None = None,
    attn_bias_k: T | None = None,
    attn_bias_v: T | None = None,
    dropout: float = 0.0,
    additive_mask: T | None = None,
    key_padding_mask: T | None = None,
) -> tuple[T, T]:
    """Multi-head attention: each head attends to its own affine maps of queries, keys and values.

    The returned weights are the ones before dropout. The output does not depend on them: a static graph computes them
    only on request, so that memory grows with the lengths and not with their product.

    Args:
        query: Queries, shape (targets, batch, width of queries).
        key: Keys, shape (sources, batch, width of keys).
        value: Values, shape (sources, batch, width of values).
        num_heads: Number of heads; width and depth are multiples of it.
        q_weight: Weights of the queries, shape (width of queries, width).
        k_weight: Weights of the keys, shape (width of keys, width).
        v_weight: Weights of the values, shape (width of values, depth).
        out_weight: Weights of the output, shape (depth, width of the output).
        q_bias: Bias of the queries, shape (width,).
        k_bias: Bias of the keys, shape (width,).
        v_bias: Bias of the values, shape (depth,).
        out_bias: Bias of the output, shape (width of the output,).
        attn_bias_k: A further key, shape (width,).
        attn_bias_v: A further value, shape (depth,).
        dropout: Probability with which a weight is set to zero, from 0 up to but not including 1.
        additive_mask: Added to the products of queries and keys, shape (targets, sources).
        key_padding_mask: Nonzero for keys to ignore, shape (batch, sources).

    Returns:
        The output, shape (targets, batch, width of the output), and the weights of all heads, shape
        (batch * num_heads, targets, sources). If all keys of a query are masked, its weights are zero.

    Raises:
        ShapeError: If the shapes do not fit together.
        ArgumentError: If `dropout` is out of range.
    Source:
        Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([[[1.0, 0.0]], [[0.0, 1.0]]])  # two steps, a batch of one, width 2
        >>> eye = nn.NdArray.from_numpy_array([[1.0, 0.0], [0.0, 1.0]])
        >>> y, weights = F.multi_head_attention(x, x, x, 1, eye, eye, eye, eye)
        >>> y.data.round(3)[:, 0]
        array([[0.67, 0.33],
               [0.33, 0.67]], dtype=float32)
        >>> weights.shape  # batch, targets, sources
        (1, 2, 2)
    """
    y, weights = attended(
        query,
        key,
        value,
        num_heads,
        q_weight,
        k_weight,
        v_weight,
        out_weight,
        q_bias,
        k_bias,
        v_bias,
        out_bias,
        attn_bias_k,
        attn_bias_v,
        dropout,
        additive_mask,
        key_padding_mask,
    )
    return y, weights()


def attended(
    query: T,
    key: T,
    value: T,
    num_heads: int,
    q_weight: T,
    k_weight: T,
    v_weight: T,
    out_weight: T,
    q_bias: T | None = None,
    k_bias: T | None = None,
    v_bias: T | None = None,
    out_bias: T | None = None,
    attn_bias_k: T | None = None,
    attn_bias_v: T | None = None,
    dropout: float = 0.0,
    additive_mask: T | None = None,
    key_padding_mask: T | None = None,
) -> tuple[T, Callable[[], T]]:
    """The output of `multi_head_attention`, and a function that computes the weights."""
    op = "multi_head_attention"
    if is_truth(num_heads):
        count(op, "num_heads", num_heads)
    inputs = (query, q_weight, k_weight, v_weight, attn_bias_k, attn_bias_v, additive_mask, key_padding_mask)
    for at, x in enumerate(inputs):
        if x is not None and not isinstance(x, (Variable, NdArray)):
            arrays(op, **{INPUTS[at]: x})
    for name, weight in (("q_weight", q_weight), ("k_weight", k_weight), ("v_weight", v_weight)):
        if weight.ndim != 2 or num_heads < 1 or weight.shape[1] % num_heads != 0:
            expected = f"`{name}` with two axes, the last a multiple of {num_heads} heads"
            raise ShapeError(f"multi_head_attention: expected {expected}, got shape {tuple(weight.shape)}")
    if query.ndim != 3:
        raise ShapeError(f"{op}: expected `query` of shape (targets, batch, width), got shape {tuple(query.shape)}")
    targets, batch, _ = query.shape
    width, depth = q_weight.shape[1] // num_heads, v_weight.shape[1] // num_heads
    q = f.affine(query, q_weight, q_bias, base_axis=2)
    k = f.affine(key, k_weight, k_bias, base_axis=2)
    v = f.affine(value, v_weight, v_bias, base_axis=2)
    if attn_bias_k is not None and attn_bias_v is not None:
        k = f.concatenate(k, further(attn_bias_k, batch), axis=0)
        v = f.concatenate(v, further(attn_bias_v, batch), axis=0)
        if additive_mask is not None:
            additive_mask = f.pad(additive_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = f.pad(key_padding_mask, (0, 1))
    q, k, v = (by_head(x, batch, num_heads, n) for x, n in ((q, width), (k, width), (v, depth)))
    mask = mask_of(additive_mask, key_padding_mask)
    scale = float(width) ** -0.5
    y = f.scaled_dot_product_attention(q, k, v, mask, dropout=dropout, scale=scale)
    y = f.reshape(f.transpose(y, (2, 0, 1, 3)), (targets, batch, num_heads * depth))
    y = f.affine(y, out_weight, out_bias, base_axis=2)

    def weights() -> T:
        """Computes the attention weights before dropout."""
        hidden = None if mask is None else f.equal_scalar(f.max(mask, axis=3, keepdims=True), float("-inf"))
        products = f.batch_matmul(f.mul_scalar(seen(q, hidden), scale), k, False, True)
        given: Any = seen(f.softmax(products if mask is None else f.add2(products, seen(mask, hidden)), 3), hidden)
        given = f.reshape(given, (batch * num_heads, targets, k.shape[2]))
        return cast("T", given)

    return y, weights


def further(x: Any, batch: int) -> Any:
    """The vector `x` as one more key or value for each sample, shape (1, batch, size)."""
    return f.broadcast(f.reshape(x, (1, 1, x.size)), (1, batch, x.size))


def by_head(x: Any, batch: int, heads: int, n: int) -> Any:
    """Splits an array of shape (length, batch, heads * n) into heads, shape (batch, heads, length, n)."""
    return f.transpose(f.reshape(x, (x.shape[0], batch, heads, n)), (1, 2, 0, 3))


def seen(x: Any, hidden: Any) -> Any:
    """`x` with zeros where `hidden` is true: for queries that may see no key. `x` itself if `hidden` is None."""
    return x if hidden is None else f.bool_fill(x, hidden, 0.0)


def mask_of(additive: Any, padding: Any) -> Any:
    """Both masks combined into an additive mask with four axes, or None."""
    if additive is not None:
        additive = f.reshape(additive, (1, 1, *additive.shape))
    if padding is None:
        return additive
    batch, sources = padding.shape
    hidden = f.reshape(padding, (batch, 1, 1, sources))
    none = f.mul_scalar(hidden, 0.0)
    below = f.where(hidden, f.add_scalar(none, float("-inf")), none)
    return below if additive is None else f.add2(below, additive)
