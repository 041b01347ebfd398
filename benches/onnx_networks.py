"""Ten common architectures of any width, for ONNX: exported by tests and measured by `benches/onnx_models.py`."""

from __future__ import annotations

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

WORDS = 50
"""Vocabulary size of the language models."""


def normalized(x, name):
    """Batch normalization for inference."""
    return PF.batch_normalization(x, batch_stat=False, name=name)


def convolution(x, n, size, name, stride=1, group=1, act=F.relu):
    """Convolution without bias, batch normalization and activation."""
    pad = (size // 2,) * 2
    if group == x.shape[1] > 1:
        h = PF.depthwise_convolution(x, (size,) * 2, pad=pad, stride=(stride,) * 2, with_bias=False, name=name)
    else:
        h = PF.convolution(x, n, (size,) * 2, pad=pad, stride=(stride,) * 2, group=group, with_bias=False, name=name)
    return act(normalized(h, name))


def resnet(x, widths=(8, 16), blocks=(2, 2)):
    """ResNet with bottleneck blocks."""
    h = F.max_pooling(convolution(x, widths[0], 7, "stem", 2), (3, 3), (2, 2), pad=(1, 1))
    for i, (width, n_blocks) in enumerate(zip(widths, blocks, strict=True)):
        for j in range(n_blocks):
            name, stride = f"block{i}{j}", 1 + (i > 0 and j == 0)
            y = convolution(convolution(h, width, 1, f"{name}a"), width, 3, f"{name}b", stride)
            y = convolution(y, 4 * width, 1, f"{name}c", act=F.identity)
            s = h if j else convolution(h, 4 * width, 1, f"{name}s", stride, act=F.identity)
            h = F.relu(F.add2(y, s))
    return PF.affine(F.global_average_pooling(h), 10, name="fc")


def hard_swish(x):
    """Hard swish, composed of simple functions."""
    return x * F.relu6(x + 3.0) * (1 / 6)


def squeezed(x, n, name, act, gate):
    """Squeeze-and-excitation: scales channels by gates computed from their means."""
    h = F.mean(x, axis=(2, 3), keepdims=True)
    h = act(PF.convolution(h, n, (1, 1), name=f"{name}1"))
    return x * gate(PF.convolution(h, x.shape[1], (1, 1), name=f"{name}2"))


def mobilenet(x, stem=8, blocks=((16, 8, 3, 1), (24, 12, 5, 2)), last=16):
    """MobileNetV3: inverted residual blocks with squeeze-and-excitation."""
    h = convolution(x, stem, 3, "stem", 2, act=hard_swish)
    for i, (wide, n, size, stride) in enumerate(blocks):
        y = convolution(h, wide, 1, f"b{i}a", act=hard_swish)
        y = convolution(y, wide, size, f"b{i}b", stride, group=wide, act=hard_swish)
        y = squeezed(y, wide // 4, f"b{i}s", F.relu, F.hard_sigmoid)
        y = convolution(y, n, 1, f"b{i}c", act=F.identity)
        h = y + h if y.shape == h.shape else y
    return PF.affine(hard_swish(PF.affine(F.global_average_pooling(h), last, name="fc1")), 10, name="fc2")


def efficientnet(x, stem=8, blocks=((8, 3, 1), (12, 5, 2))):
    """EfficientNet: inverted residual blocks with swish."""
    h = convolution(x, stem, 3, "stem", 2, act=F.swish)
    for i, (n, size, stride) in enumerate(blocks):
        wide = 4 * h.shape[1]
        y = convolution(h, wide, 1, f"b{i}a", act=F.swish)
        y = convolution(y, wide, size, f"b{i}b", stride, group=wide, act=F.swish)
        y = convolution(squeezed(y, h.shape[1] // 4, f"b{i}s", F.swish, F.sigmoid), n, 1, f"b{i}c", act=F.identity)
        h = y + h if y.shape == h.shape else y
    return PF.affine(F.dropout(F.global_average_pooling(h), 0.2), 10, name="fc")


def densenet(x, stem=8, growth=4, layers=(3, 3)):
    """DenseNet: each layer reads all earlier ones of its block."""
    h = convolution(x, stem, 3, "stem")
    for i, n_layers in enumerate(layers):
        for j in range(n_layers):
            y = PF.convolution(F.relu(normalized(h, f"n{i}{j}")), growth, (3, 3), pad=(1, 1), name=f"c{i}{j}")
            h = F.concatenate(h, y, axis=1)
        h = F.average_pooling(convolution(h, h.shape[1] // 2, 1, f"t{i}"), (2, 2))
    return F.log_softmax(PF.affine(F.global_average_pooling(h), 10, name="fc"))


def unet(x, width=4):
    """U-Net: downsampling, upsampling, and skip connections between them."""
    a = convolution(x, width, 3, "a")
    b = convolution(F.max_pooling(a, (2, 2)), 2 * width, 3, "b")
    c = convolution(F.max_pooling(b, (2, 2)), 4 * width, 3, "c")
    h = F.concatenate(PF.deconvolution(c, 2 * width, (2, 2), stride=(2, 2), name="up1"), b, axis=1)
    h = convolution(h, 2 * width, 3, "d")
    h = F.concatenate(F.interpolate(h, scale=(2, 2), mode="linear", half_pixel=True), a, axis=1)
    h = PF.convolution(PF.group_normalization(h, 4, name="g"), 2, (1, 1), name="out")
    return F.softmax(h, axis=1), F.interpolate(h, scale=(2, 2), mode="nearest")


def yolo(x, stem=8):
    """YOLO: a detection head with boxes decoded from grid cells."""
    h = convolution(convolution(x, stem, 3, "a", 4), 2 * stem, 3, "b", 2)
    h = PF.convolution(h, 2 * 8, (1, 1), name="head")
    n, _, height, width = h.shape
    h = F.transpose(F.reshape(h, (n, 2, 8, height, width)), (0, 1, 3, 4, 2))
    ys, xs = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    cells = nn.Variable.from_numpy_array(np.stack([xs, ys], axis=-1)[None, None].astype(np.float32))
    centres = (F.sigmoid(h[..., :2]) + cells) * (1 / width)
    sizes = F.exp(h[..., 2:4]) * 0.3
    boxes = F.concatenate(centres, sizes, F.sigmoid(h[..., 4:]), axis=4)
    return F.nms_detection2d(F.reshape(boxes, (n, 2 * height * width, 8)), thresh=0.2, nms=0.3)


def attended(h, n_heads, name, mask=None, causal=False, past=None):
    """Multi-head self-attention, optionally with cached keys and values. Returns the output, keys and values."""
    n, time, width = h.shape
    parts = PF.affine(h, 3 * width, base_axis=2, name=f"{name}/qkv")
    parts = F.transpose(F.reshape(parts, (n, time, 3, n_heads, width // n_heads)), (2, 0, 3, 1, 4))
    q, k, v = F.split(parts, axis=0)
    if past is not None:
        k, v = (F.concatenate(old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
    y = F.scaled_dot_product_attention(q, k, v, mask, causal=causal)
    y = F.reshape(F.transpose(y, (0, 2, 1, 3)), (n, time, width))
    return PF.affine(y, width, base_axis=2, name=f"{name}/out"), k, v


def perceptron(h, name, act=F.gelu):
    """The feed-forward layers of a transformer block."""
    return PF.affine(
        act(PF.affine(h, 2 * h.shape[2], base_axis=2, name=f"{name}/1")), h.shape[2], base_axis=2, name=f"{name}/2"
    )


def layer_norm(h, name):
    """Layer normalization over the last axis."""
    return PF.layer_normalization(h, batch_axis=(0, 1), name=name)


def bert(tokens, mask, width=16, layers=2, heads=4):
    """BERT: a text encoder with a padding mask."""
    n, time = tokens.shape
    h = PF.embed(tokens, WORDS, width, name="words")
    h = layer_norm(h + PF.embed(nn.Variable.from_numpy_array(np.arange(time)), time, width, name="places"), "n")
    hidden = F.reshape((1.0 - mask) * -1e4, (n, 1, 1, time))
    for i in range(layers):
        h = layer_norm(h + attended(h, heads, f"a{i}", hidden)[0], f"n{i}1")
        h = layer_norm(h + perceptron(h, f"m{i}"), f"n{i}2")
    return h, F.tanh(PF.affine(h[:, 0], width, name="pool"))


def gpt2(tokens, keys, values):
    """GPT-2: one decoding step with cached keys and values."""
    layers, heads, width = keys.shape[1], keys.shape[2], keys.shape[2] * keys.shape[4]
    h = PF.embed(tokens, WORDS, width, name="words")
    ends = []
    for i in range(layers):
        past = [F.reshape(held[:, i], (held.shape[0], *held.shape[2:])) for held in (keys, values)]
        y, k, v = attended(layer_norm(h, f"n{i}1"), heads, f"a{i}", past=past)
        h = h + y
        h = h + perceptron(layer_norm(h, f"n{i}2"), f"m{i}")
        ends += [k, v]
    scores = PF.affine(layer_norm(h, "n"), WORDS, base_axis=2, with_bias=False, name="head")
    return scores, F.stack(*ends[::2], axis=1), F.stack(*ends[1::2], axis=1)


def vit(x, width=16, layers=2, heads=2):
    """Vision transformer on image patches."""
    n = x.shape[0]
    h = PF.convolution(x, width, (8, 8), stride=(8, 8), name="patches")
    n_patches = h.shape[2] * h.shape[3]
    h = F.transpose(F.reshape(h, (n, width, n_patches)), (0, 2, 1))
    with nn.parameter_scope("vit"):
        token = nn.parameter.get_parameter_or_create("token", (1, 1, width))
        places = nn.parameter.get_parameter_or_create("places", (1, n_patches + 1, width))
    h = F.concatenate(F.broadcast(token, (n, 1, width)), h, axis=1) + places
    for i in range(layers):
        h = h + attended(layer_norm(h, f"n{i}1"), heads, f"a{i}")[0]
        h = h + perceptron(layer_norm(h, f"n{i}2"), f"m{i}")
    return PF.affine(layer_norm(h, "n")[:, 0], 10, name="fc")


def lstm(x, units=6):
    """A bidirectional LSTM of two layers."""
    h = F.transpose(x, (1, 0, 2))
    zeros = F.transpose(F.constant(0, (x.shape[0], 2, 2, units)), (1, 2, 0, 3))
    shapes = {
        "first": (2, 4, units, x.shape[2] + units),
        "later": (1, 2, 4, units, 3 * units),
        "bias": (2, 2, 4, units),
    }
    w = [nn.parameter.get_parameter_or_create(f"lstm/{key}", shape) for key, shape in shapes.items()]
    y, _, _ = F.lstm(h, zeros, zeros, *w, num_layers=2, bidirectional=True, training=False)
    return PF.affine(y[-1], 4, name="fc")


def shaken(seed=0):
    """Randomizes parameters that are zeros or ones, so that each affects the result."""
    rng = np.random.default_rng(seed)
    for key, x in nn.get_parameters(grad_only=False).items():
        noise = rng.normal(size=x.shape).astype(np.float32) * 0.1
        x.d = np.abs(x.d + noise) + 0.1 if key.endswith("var") else x.d + noise
