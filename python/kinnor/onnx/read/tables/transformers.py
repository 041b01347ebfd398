"""Operators of `com.microsoft` that exported transformers use."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ..values import OnnxError, Row
from .arithmetic import matmul
from .building import reshape
from .normalization import standardized

if TYPE_CHECKING:
    from ..values import Node

__all__ = ["TRANSFORMERS"]


def _mask(node: Node, n_keys: int) -> Variable | None:
    """The additive mask of attention scores, from an input (batch, keys) that is 1 for keys to attend to."""
    if not node.has(3):
        return None
    mask = node.x(3)
    if mask.ndim != 2 or mask.shape[1] != n_keys:
        raise node.unsupported(f"expected a mask of shape (batch, {n_keys}), got {tuple(mask.shape)}")
    hidden = (1.0 - mask) * node.get("mask_filter_value", -10000.0)
    return reshape(hidden, (mask.shape[0], 1, 1, n_keys))


def _attention(node: Node) -> list[Variable]:
    """Builds `Attention`."""
    x, heads = node.x(0), node.get("num_heads")
    batch, time, _ = x.shape
    parts = matmul(x, node.x(1))
    parts = parts + node.x(2) if node.has(2) else parts
    sizes = node.get("qkv_hidden_sizes") or [parts.shape[2] // 3] * 3
    ends = np.cumsum([0, *sizes]).tolist()
    split = []
    for low, high in pairwise(ends):
        part = F.slice(parts, [0, 0, low], [batch, time, high], [1, 1, 1])
        split.append(F.transpose(reshape(part, (batch, time, heads, (high - low) // heads)), (0, 2, 1, 3)))
    q, k, v = split
    if node.has(4):
        old = F.split(node.x(4), axis=0)
        k, v = F.concatenate(old[0], k, axis=2), F.concatenate(old[1], v, axis=2)
    mask = _mask(node, k.shape[2])
    if node.has(5):
        mask = node.x(5) if mask is None else mask + node.x(5)
    if node.get("unidirectional", 0):
        n_keys = k.shape[2]
        later = np.where(np.tri(time, n_keys, n_keys - time, dtype=bool), 0.0, -np.inf).astype(np.float32)
        hidden = Variable.from_numpy_array(later[None, None])
        mask = hidden if mask is None else mask + hidden
    y = F.scaled_dot_product_attention(q, k, v, mask, scale=node.get("scale") or None)
    y = reshape(F.transpose(y, (0, 2, 1, 3)), (batch, time, sizes[2]))
    return [y, F.stack(k, v, axis=0)][: node.n_outputs]


def _embedded(node: Node) -> list[Any]:
    """Builds `EmbedLayerNormalization`."""
    places = node.static(8) if node.has(8) else np.arange(node.value(0).shape[1])[None]
    h = F.embed(node.x(0), node.x(2)) + F.embed(Variable.from_numpy_array(places.astype(np.int64)), node.x(3))
    if node.has(1) and node.has(4):
        h = h + F.embed(node.x(1), node.x(4))
    y = standardized(h, [2], node.get("epsilon", 1e-12))[0] * node.x(5) + node.x(6)
    counted = F.sum(node.x(7), axis=[1]) if node.has(7) else F.constant(0.0, (h.shape[0],))
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
    n_blocks = -(-n_in // size)
    blocks = _levels(node.static(1).reshape(n_out, n_blocks, -1), bits, size)
    if blocks.shape != (n_out, n_blocks, size):
        raise OnnxError(f"MatMulNBits: expected {size} levels for each block, got {blocks.shape[2]}")
    scales = np.asarray(node.static(2), np.float32).reshape(n_out, n_blocks, 1)
    zero: Any = float(1 << (bits - 1))
    if node.has(3):
        held = node.static(3)
        zero = _levels(held.reshape(n_out, -1), bits, n_blocks) if held.dtype == np.uint8 else held
        zero = np.asarray(zero, np.float32).reshape(n_out, n_blocks, 1)
    weight = ((blocks - zero) * scales).reshape(n_out, -1)[:, :n_in]
    y = matmul(node.x(0), Variable.from_numpy_array(np.ascontiguousarray(weight.T)))
    return y + node.x(5) if node.has(5) else y


TRANSFORMERS: dict[tuple[str, str], Row] = {
    ("com.microsoft", "Attention"): Row(_attention),
    ("com.microsoft", "EmbedLayerNormalization"): Row(_embedded, dtype=np.float32),
    ("com.microsoft", "MatMulNBits"): Row(_matmul_bits),
}
"""One row for each operator."""
