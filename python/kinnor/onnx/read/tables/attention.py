"""Operators of `com.microsoft` in exported transformers: attention with caches, masks and positions, and others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..values import OnnxError, Row, Value
from .arithmetic import matmul
from .building import expand, per_channel, reshape
from .normalization import standardized

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..values import Node

__all__ = ["ATTENTION", "TRANSFORMERS"]


def _added(a: Variable | None, b: Variable | None) -> Variable | None:
    """Returns the sum of two masks. Either may be missing."""
    return b if a is None else a if b is None else a + b


def _constant(array: Any) -> Variable:
    """Returns a variable of constant values in float32."""
    return Variable.from_numpy_array(np.ascontiguousarray(array, np.float32))


def _hiding(shown: NDArray[Any], hidden: float = -np.inf) -> Variable:
    """Returns an additive mask: zero where `shown` is true, else `hidden`."""
    return _constant(np.where(shown, 0.0, hidden))


def _causal(n_queries: int, n_keys: int) -> Variable:
    """Returns the additive mask that hides the keys after each query.

    The last query has the position of the last key.
    """
    return _hiding(np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)[None, None])


def _mask(node: Node, i: int, n_queries: int, n_keys: int) -> Variable | None:
    """Returns input `i` as an additive mask.

    It is a mask of ones for visible keys, or the number of keys of each sequence.
    """
    if not node.has(i):
        return None
    mask, hidden = node.x(i), node.get("mask_filter_value", -10000.0)
    if mask.ndim == 1:
        places = _constant(np.arange(n_keys)[None])
        mask = F.less(places, reshape(mask, (mask.shape[0], 1)))
    if mask.shape[-1] != n_keys or mask.ndim not in (2, 3) or (mask.ndim == 3 and mask.shape[1] != n_queries):
        wanted = f"(batch,), (batch, {n_keys}) or (batch, {n_queries}, {n_keys})"
        raise node.unsupported(f"expected a mask of shape {wanted}, got {tuple(node.value(i).shape)}")
    shape = (mask.shape[0], 1, 1 if mask.ndim == 2 else n_queries, n_keys)
    return reshape((1.0 - mask) * hidden, shape)


def _heads(x: Variable, n_heads: int) -> Variable:
    """Returns (batch, time, width) as (batch, heads, time, width of a head)."""
    if x.shape[2] % n_heads:
        raise OnnxError(f"expected a width that {n_heads} heads divide, got {x.shape[2]}")
    return F.transpose(reshape(x, (*x.shape[:2], n_heads, x.shape[2] // n_heads)), (0, 2, 1, 3))


def _joined(y: Variable) -> Variable:
    """Returns (batch, heads, time, width of a head) as (batch, time, width)."""
    batch, heads, time, width = y.shape
    return reshape(F.transpose(y, (0, 2, 1, 3)), (batch, time, heads * width))


def _attended(node: Node, q: Variable, k: Variable, v: Variable, mask: Variable | None) -> Variable:
    """Returns attention in the order of axes (batch, time, width)."""
    scale = node.get("scale") or None
    if not (cap := node.get("softcap", 0.0)):
        return _joined(F.scaled_dot_product_attention(q, k, v, mask, scale=scale))
    products = F.tanh((q @ F.transpose(k, (0, 1, 3, 2))) * ((scale or q.shape[3] ** -0.5) / cap)) * cap
    return _joined(F.softmax(products if mask is None else products + mask, axis=3) @ v)


def _split_heads(node: Node, parts: Variable, past: int) -> list[Variable]:
    """Returns queries, keys and values of their concatenation, after the keys and values of a cache."""
    heads, batch, time = node.get("num_heads"), parts.shape[0], parts.shape[1]
    sizes = node.get("qkv_hidden_sizes") or [parts.shape[2] // 3] * 3
    split = [
        _heads(F.slice(parts, [0, 0, low], [batch, time, high], [1, 1, 1]), heads)
        for low, high in pairwise(np.cumsum([0, *sizes]).tolist())
    ]
    if node.has(past):
        old = F.split(node.x(past), axis=0)
        split[1:] = [F.concatenate(before, new, axis=2) for before, new in zip(old, split[1:], strict=True)]
    return split


def _of_parts(node: Node, parts: Variable, mask: int, past: int, bias: int) -> list[Variable]:
    """Returns attention of the concatenation of queries, keys and values, and the cache after it."""
    if node.get("do_rotary", 0) or node.get("past_present_share_buffer", 0):
        raise node.unsupported("expected no rotary positions and a cache of its own, got one of them")
    q, k, v = _split_heads(node, parts, past)
    n_queries, n_keys = q.shape[2], k.shape[2]
    added = _mask(node, mask, n_queries, n_keys)
    added = _added(added, node.optional(bias) if bias else None)
    if node.get("unidirectional", 0):
        added = _added(added, _causal(n_queries, n_keys))
    return [_attended(node, q, k, v, added), F.stack(k, v, axis=0)][: node.n_outputs]


def _attention(node: Node) -> list[Variable]:
    """Builds `Attention`."""
    parts = matmul(node.x(0), node.x(1))
    return _of_parts(node, parts + node.x(2) if node.has(2) else parts, 3, 4, 5)


def _attention_of_levels(node: Node) -> list[Value]:
    """Builds `QAttention`."""

    def centered(i: int, zero: int) -> Variable:
        """Returns levels minus their zero point, as floats."""
        x = node.x(i)
        ones = per_channel(_constant([1.0]), -1, x.ndim)
        return F.dequantize_linear(x, ones, per_channel(node.x(zero), -1, x.ndim) if node.has(zero) else ones * 0.0)

    scale = per_channel(node.x(3), -1, 3) * per_channel(node.x(4), -1, 3)
    parts = matmul(centered(0, 6), centered(1, 7)) * scale + node.x(2)
    sources = node.value(0).sources
    return [Value(y, np.float32, sources=sources) for y in _of_parts(node, parts, 5, 8, 0)]


def _multi_head(node: Node) -> list[Variable]:
    """Builds `MultiHeadAttention`."""
    heads, query = node.get("num_heads"), node.x(0)
    if node.has(9) or node.n_outputs > 3:
        raise node.unsupported("expected no beams and no products as an output, got one of them")
    if query.ndim != 3 or not node.has(1) or len(node.value(1).shape) == 5:
        raise node.unsupported("expected queries, keys and values as three inputs, got packed ones")
    q = _heads(_biased(node, query, 0), heads)
    k, v = (x if x.ndim == 4 else _heads(_biased(node, x, i), heads) for i, x in ((1, node.x(1)), (2, node.x(2))))
    if node.has(6):
        k, v = F.concatenate(node.x(6), k, axis=2), F.concatenate(node.x(7), v, axis=2)
    n_queries, n_keys = q.shape[2], k.shape[2]
    added = _added(_mask(node, 4, n_queries, n_keys), node.optional(5))
    if node.get("unidirectional", 0):
        added = _added(added, _causal(n_queries, n_keys))
    return [_attended(node, q, k, v, added), k, v][: node.n_outputs]


def _biased(node: Node, x: Variable, part: int) -> Variable:
    """Returns queries, keys or values with their part of the bias."""
    if not node.has(3):
        return x
    width = node.value(0).shape[2]
    start, size = part * width, x.shape[2]
    return x + F.slice(node.x(3), [start], [start + size], [1])


def _rotated(x: Variable, cos: Variable, sin: Variable, is_interleaved: bool) -> Variable:
    """Returns (batch, heads, time, width), turned by angles that broadcast to half of it. The rest stays.

    Args:
        x: The array.
        cos: The cosines.
        sin: The sines.
        is_interleaved: True if elements 2i and 2i + 1 are turned together; else i and i + half.
    """
    half, (batch, heads, time, width) = cos.shape[3], x.shape

    def part(low: int, high: int, step: int = 1) -> Variable:
        """Returns the elements from `low` to `high` of the last axis."""
        return F.slice(x, [0, 0, 0, low], [batch, heads, time, high], [1, 1, 1, step])

    a, b = (part(0, 2 * half - 1, 2), part(1, 2 * half, 2)) if is_interleaved else (part(0, half), part(half, 2 * half))
    first, second = a * cos - b * sin, b * cos + a * sin
    if is_interleaved:
        turned = reshape(F.stack(first, second, axis=4), (batch, heads, time, 2 * half))
    else:
        turned = F.concatenate(first, second, axis=3)
    return turned if width == 2 * half else F.concatenate(turned, part(2 * half, width), axis=3)


def _angles(cache: Variable, places: Variable, time: int) -> Variable:
    """Returns rows of a table of cosines or sines for positions (batch or 1, time)."""
    found = F.embed(places, cache)
    return reshape(found, (found.shape[0], 1, time, cache.shape[1]))


def _rotary(node: Node) -> Variable:
    """Builds `RotaryEmbedding`."""
    x, cos = node.x(0), node.x(2)
    if node.get("is_packed_batching", 0) or node.get("scale", 1.0) != 1.0:
        raise node.unsupported("expected scale 1 and no packed batches, got one of them")
    is_flat = x.ndim == 3
    if is_flat:
        heads = node.get("num_heads", 0) if node.get("rotary_embedding_dim", 0) else 0
        x = _heads(x, heads or x.shape[2] // (2 * cos.shape[1]))
    time, places = x.shape[2], node.x(1)
    if places.size == 1 and places.ndim == 1:
        places = reshape(places, (1, 1)) + _constant(np.arange(time)[None])
    angles = (_angles(node.x(i), places, time) for i in (2, 3))
    y = _rotated(x, next(angles), next(angles), bool(node.get("interleaved", 0)))
    return _joined(y) if is_flat else y


def _repeated(x: Variable, times: int) -> Variable:
    """Repeats each head `times` times, next to each other."""
    batch, heads, time, width = x.shape
    if times == 1:
        return x
    wide = expand(reshape(x, (batch, heads, 1, time, width)), (batch, heads, times, time, width))
    return reshape(wide, (batch, heads * times, time, width))


def _ends(node: Node, batch: int, total: int) -> NDArray[Any]:
    """Returns the number of keys of each sequence, including the keys of this call."""
    return np.full(batch, total) if batch == 1 else node.static(5).astype(np.int64).ravel() + 1


def _cached(past: Variable | None, new: Variable, before: NDArray[Any], n_keys: int) -> Variable:
    """Returns keys or values of a cache: for each sequence, its `before` old rows and then the new ones."""
    batch, time = new.shape[0], new.shape[2]
    held = new if past is None else F.concatenate(past, new, axis=2)
    offset = held.shape[2] - time
    places = np.arange(n_keys)[None].repeat(batch, 0)
    is_new = (places >= before[:, None]) & (places < before[:, None] + time)
    places = np.where(is_new, places - before[:, None] + offset, np.minimum(places, held.shape[2] - 1))
    if (places == places[:1]).all():
        if n_keys == held.shape[2] and (places[0] == np.arange(n_keys)).all():
            return held
        return F.gather(held, Variable.from_numpy_array(places[0].astype(np.int64)), axis=2)
    rows = [
        F.gather(_row(held, k), Variable.from_numpy_array(places[k].astype(np.int64)), axis=2) for k in range(batch)
    ]
    return F.concatenate(*rows, axis=0)


def _row(x: Variable, k: int) -> Variable:
    """Returns element `k` of the batch axis, which stays with length one."""
    return F.slice(x, [k, 0, 0, 0], [k + 1, *x.shape[1:]], [1] * 4)


_GROUPED = {"smooth_softmax": 0, "sliding_window_cache": 0, "kv_cache_bit_width": 0, "qk_output": 0}
"""Settings of `GroupQueryAttention` that have to be as they are by default."""


def _grouped(node: Node) -> list[Variable]:
    """Builds `GroupQueryAttention`."""
    heads, kv_heads = node.get("num_heads"), node.get("kv_num_heads")
    odd = [name for name, usual in _GROUPED.items() if node.get(name, usual) not in (usual, -1)]
    odd += [f"input {i}" for i in range(11, len(node.inputs)) if node.has(i)]
    if odd or node.n_outputs > 3 or node.get("causal", 1) == 0:
        raise node.unsupported(f"expected causal attention over a cache of float32, got {odd or 'more'}")
    if node.has(1):
        q, k, v = _heads(node.x(0), heads), _heads(node.x(1), kv_heads), _heads(node.x(2), kv_heads)
    else:
        whole = _heads(node.x(0), heads + 2 * kv_heads)
        batch, _, time, width = whole.shape
        bounds = pairwise([0, heads, heads + kv_heads, heads + 2 * kv_heads])
        q, k, v = (F.slice(whole, [0, low, 0, 0], [batch, high, time, width], [1] * 4) for low, high in bounds)
    batch, _, time, _ = q.shape
    total = int(node.static(6).item())
    past = [node.optional(i) for i in (3, 4)]
    n_past = past[0].shape[2] if past[0] is not None else 0
    n_keys = max(total, n_past)
    ends = _ends(node, batch, total)
    if not total >= time or not (ends > 0).all() or not (ends <= total).all():
        raise OnnxError(f"GroupQueryAttention: expected lengths from 1 to {total}, got {ends.tolist()}")
    before = np.zeros(batch, np.int64) if total == time else ends - time
    places = before[:, None] + np.arange(time)
    if node.get("do_rotary", 0):
        at = node.x(9) if node.has(9) else Variable.from_numpy_array(places)
        cos, sin = (_angles(node.x(i), at, time) for i in (7, 8))
        q, k = (_rotated(x, cos, sin, bool(node.get("rotary_interleaved", 0))) for x in (q, k))
    k, v = (_cached(held if n_past else None, new, before, n_keys) for held, new in zip(past, (k, v), strict=True))
    keys = np.arange(n_keys)
    shown = keys <= places[:, :, None]
    if (window := node.get("local_window_size", -1)) > 0:
        shown &= keys > places[:, :, None] - window
    mask = _hiding(shown[:, None])
    if node.has(10):
        bias = node.x(10)
        widths = [0] * 6 + [0, n_keys - bias.shape[3]]
        mask = mask + (F.pad(bias, widths, "constant", 0.0) if widths[-1] else bias)
    times = heads // kv_heads
    y = _attended(node, q, _repeated(k, times), _repeated(v, times), mask)
    return [y, k, v][: node.n_outputs]


ATTENTION: dict[tuple[str, str], Row] = {
    ("com.microsoft", "Attention"): Row(_attention),
    ("com.microsoft", "GroupQueryAttention"): Row(_grouped),
    ("com.microsoft", "MultiHeadAttention"): Row(_multi_head),
    ("com.microsoft", "QAttention"): Row(_attention_of_levels),
    ("com.microsoft", "RotaryEmbedding"): Row(_rotary),
}
"""One row for each operator."""


def _embedded(node: Node) -> list[Any]:
    """Builds `EmbedLayerNormalization`."""
    places = node.static(8) if node.has(8) else None
    return _sum_of_embeddings(node, lambda i: node.x(i), places)


def _embedded_levels(node: Node) -> list[Any]:
    """Builds `QEmbedLayerNormalization`, whose tables are 8-bit levels with a scale and a zero point each."""

    def table(i: int) -> Variable:
        """Returns the numbers of a table of levels."""
        levels, scale = node.static(i).astype(np.float32), np.float32(node.static(i + 6))
        return Variable.from_numpy_array((levels - np.float32(node.static(i + 11))) * scale)

    return _sum_of_embeddings(node, table, None)


def _sum_of_embeddings(node: Node, table: Callable[[int], Variable], places: Any) -> list[Any]:
    """Returns the normalized sum of the embeddings of words, places and segments, the lengths, and the sum."""
    places = np.arange(node.value(0).shape[1])[None] if places is None else places
    h = F.embed(node.x(0), table(2)) + F.embed(Variable.from_numpy_array(places.astype(np.int64)), table(3))
    if node.has(1) and node.has(4):
        h = h + F.embed(node.x(1), table(4))
    y = standardized(h, [2], node.get("epsilon", 1e-12))[0] * table(5) + table(6)
    counted = Value(np.zeros(h.shape[0], np.int32))
    if node.has(7):
        counted = Value(F.sum(node.x(7), axis=[1]), np.int32, sources=node.value(7).sources)
    return [y, counted, h][: node.n_outputs]


def _levels(packed: Any, bits: int, n: int) -> Any:
    """Unpacks `n` numbers of 4 or 8 bits along the last axis, low bits first."""
    found = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1) if bits == 4 else packed
    return found[..., :n].astype(np.float32)


def _matmul_bits(node: Node) -> Variable:
    """Builds `MatMulNBits`."""
    size, n_in, n_out, bits = node.get("block_size"), node.get("K"), node.get("N"), node.get("bits", 4)
    if bits not in (4, 8) or node.has(4):
        raise node.unsupported(f"expected levels of 4 or 8 bits in order, got {bits} bits")
    if size < 16 or size % 16:
        raise node.unsupported(f"expected blocks of a multiple of 16 numbers, got {size}")
    n_blocks = -(-n_in // size)
    held = np.asarray(node.static(1)).reshape(n_out, n_blocks, -1)
    if held.shape[2] != size * bits // 8:
        raise OnnxError(f"MatMulNBits: expected {size} levels for each block, got {held.shape[2] * 8 // bits}")
    scales = np.asarray(node.static(2), np.float32).reshape(n_out, n_blocks)
    levels, scale, zero = Variable.from_numpy_array(held), Variable.from_numpy_array(scales), None
    if node.has(3):
        given = node.static(3)
        given = _levels(given.reshape(n_out, -1), bits, n_blocks) if given.dtype == np.uint8 else given
        zero = Variable.from_numpy_array(np.asarray(given, np.float32).reshape(n_out, n_blocks))
    # Level 4 lets a runtime quantize the input to 8 bits.
    is_quick = node.get("accuracy_level", 0) == 4
    y = F.block_quantized_affine(node.x(0), levels, scale, zero, bits, size, is_quick)
    return y + node.x(5) if node.has(5) else y


TRANSFORMERS: dict[tuple[str, str], Row] = {
    **ATTENTION,
    ("com.microsoft", "EmbedLayerNormalization"): Row(_embedded, dtype=np.float32),
    ("com.microsoft", "QEmbedLayerNormalization"): Row(_embedded_levels, dtype=np.float32),
    ("com.microsoft", "MatMulNBits"): Row(_matmul_bits),
}
"""One row for each operator."""
