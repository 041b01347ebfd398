"""Networks of any size, for the bench of growth. Each accepts another batch after it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Network(NamedTuple):
    """The inputs of a network, and a function that builds the loss from their variables."""

    inputs: list[np.ndarray[Any, Any]]
    build: Callable[..., nn.Variable]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Returns normally distributed numbers."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def classes(*shape: int, n: int = 10) -> np.ndarray[Any, Any]:
    """Returns random classes."""
    return np.random.default_rng(1).integers(n, size=shape).astype(np.int32)


def mlp(batch: int, width: int, depth: int) -> Network:
    """Affine layers of one width with tanh."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        h = x
        for n in range(depth):
            h = F.tanh(PF.affine(h, width, name=f"layer{n}"))
        return F.mean(F.squared_error(h, t))

    return Network([normal(batch, width), normal(batch, width)], build)


def convolution_and_norm(x: nn.Variable, n: int, size: int, stride: int, name: str) -> nn.Variable:
    """Convolution without bias and batch normalization."""
    pad, strides = (size // 2,) * 2, (stride,) * 2
    h = PF.convolution(x, n, (size,) * 2, pad=pad, stride=strides, with_bias=False, name=name)
    return PF.batch_normalization(h, name=name)


def residual(batch: int, blocks: int, maps: int = 32, side: int = 16) -> Network:
    """Residual blocks of two convolutions."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        h = x
        for n in range(blocks):
            y = F.relu(convolution_and_norm(h, maps, 3, 1, f"block{n}a"))
            h = F.relu(h + convolution_and_norm(y, maps, 3, 1, f"block{n}b"))
        y = PF.affine(F.global_average_pooling(h), 10, name="classes")
        return F.mean(F.softmax_cross_entropy(y, t))

    return Network([normal(batch, maps, side, side), classes(batch, 1)], build)


def resnet(batch: int, side: int, widths: Sequence[int], blocks: Sequence[int]) -> Network:
    """ResNet with bottleneck blocks, such as ResNet-50."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        h = F.max_pooling(F.relu(convolution_and_norm(x, widths[0], 7, 2, "stem")), (3, 3), (2, 2), pad=(1, 1))
        for i, (width, n_blocks) in enumerate(zip(widths, blocks, strict=True)):
            for j in range(n_blocks):
                name, stride = f"block{i}{j}", 1 + (i > 0 and j == 0)
                y = F.relu(convolution_and_norm(h, width, 1, 1, f"{name}a"))
                y = F.relu(convolution_and_norm(y, width, 3, stride, f"{name}b"))
                y = convolution_and_norm(y, 4 * width, 1, 1, f"{name}c")
                skip = h if j else convolution_and_norm(h, 4 * width, 1, stride, f"{name}s")
                h = F.relu(y + skip)
        y = PF.affine(F.global_average_pooling(h), 1000, name="classes")
        return F.mean(F.softmax_cross_entropy(y, t))

    return Network([normal(batch, 3, side, side), classes(batch, 1, n=1000)], build)


def attended(h: nn.Variable, heads: int, name: str) -> nn.Variable:
    """Self-attention with several heads."""
    _, tokens, width = h.shape
    parts = PF.affine(h, 3 * width, base_axis=2, name=f"{name}qkv")
    parts = F.transpose(F.reshape(parts, (-1, tokens, 3, heads, width // heads)), (2, 0, 3, 1, 4))
    y = F.scaled_dot_product_attention(*F.split(parts, axis=0))
    y = F.reshape(F.transpose(y, (0, 2, 1, 3)), (-1, tokens, width))
    return PF.affine(y, width, base_axis=2, name=f"{name}out")


def attention(batch: int, tokens: int, width: int, heads: int) -> Network:
    """A layer of self-attention."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        return F.mean(F.squared_error(attended(x, heads, "attention"), t))

    return Network([normal(batch, tokens, width), normal(batch, tokens, width)], build)


def bert(batch: int, tokens: int, words: int, width: int, layers: int) -> Network:
    """A text encoder that predicts words, such as BERT-base."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""

        def norm(h: nn.Variable, name: str) -> nn.Variable:
            """Layer normalization over the last axis."""
            return PF.layer_normalization(h, batch_axis=(0, 1), name=name)

        places = nn.Variable.from_numpy_array(np.arange(tokens))
        h = norm(PF.embed(x, words, width, name="words") + PF.embed(places, tokens, width, name="places"), "norm")
        for n in range(layers):
            h = norm(h + attended(h, max(width // 64, 1), f"layer{n}"), f"layer{n}a")
            y = F.gelu(PF.affine(h, 4 * width, base_axis=2, name=f"layer{n}first"))
            h = norm(h + PF.affine(y, width, base_axis=2, name=f"layer{n}second"), f"layer{n}b")
        y = F.tanh(PF.affine(h[:, 0], width, name="pool"))
        return F.mean(F.softmax_cross_entropy(PF.affine(y, 2, name="classes"), t))

    return Network([classes(batch, tokens, n=words), classes(batch, 1, n=2)], build)


def lstm(batch: int, tokens: int, width: int) -> Network:
    """A layer of LSTM."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        zero = nn.Variable.from_numpy_array(np.zeros((1, 1, batch, width), np.float32))
        y, _, _ = PF.lstm(x, zero, zero, name="lstm")
        return F.mean(F.squared_error(y, t))

    return Network([normal(tokens, batch, width), normal(tokens, batch, width)], build)


def embedding(rows: int, width: int = 64) -> Network:
    """A table of words, and a layer that classifies sequences of 32."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        h = F.mean(PF.embed(x, rows, width, name="words"), axis=1)
        return F.mean(F.softmax_cross_entropy(PF.affine(h, 10, name="classes"), t))

    return Network([classes(16, 32, n=rows), classes(16, 1)], build)


def mixed(batch: int) -> Network:
    """Convolutions, normalizations, attention and affine layers."""

    def build(x: nn.Variable, t: nn.Variable) -> nn.Variable:
        """Returns the loss."""
        h = F.relu(convolution_and_norm(x, 32, 3, 1, "first"))
        h = F.relu(convolution_and_norm(F.max_pooling(h, (2, 2)), 64, 3, 2, "second"))
        h = attended(F.reshape(F.transpose(h, (0, 2, 3, 1)), (-1, 64, 64)), 4, "attention")
        h = F.tanh(PF.affine(h, 256, name="affine"))
        return F.mean(F.softmax_cross_entropy(PF.affine(h, 10, name="classes"), t))

    return Network([normal(batch, 3, 32, 32), classes(batch, 1)], build)
