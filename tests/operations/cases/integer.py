"""Rows of operations on 8-bit quantized arrays: layers, and operations between layers."""

from __future__ import annotations

import numpy as np

from . import Row, sample, whole
from .layers import affine, batch_matmul, convolution


def uint8(*shape, seed=0):
    """Returns random unsigned 8-bit levels."""
    return whole(*shape, below=256, seed=seed).astype(np.uint8)


def int8(*shape, seed=0):
    """Returns random signed 8-bit levels."""
    return (whole(*shape, below=256, seed=seed) - 128).astype(np.int8)


def rounded(numbers, y_zero=0, least=0, most=255):
    """Rounds numbers to unsigned 8-bit levels between `least` and `most`, around a zero point."""
    return np.clip(np.round(numbers) + y_zero, least, most).astype(np.uint8)


def finished(numbers, y_zero=None, least=0, most=255):
    """Rounds the result of a layer to 8-bit levels if it has a zero point, else returns the numbers."""
    return numbers if y_zero is None else rounded(numbers, y_zero, least, most)


def quantized_convolution(x, w, x_zero, w_zero, bias, scale, pad=None, stride=None, dilation=None, group=1, **how):
    """NumPy reference of `quantized_convolution`."""
    w_zero = w_zero.reshape(-1, 1, 1, 1)
    sums = convolution(
        x.astype(float) - x_zero,
        w.astype(float) - w_zero,
        base_axis=x.ndim - 3,
        pad=pad,
        stride=stride,
        dilation=dilation,
        group=group,
        channel_last=True,
    )
    return finished((sums + bias) * scale, **how)


def quantized_affine(x, w, x_zero, w_zero, bias, scale, shift=None, **how):
    """NumPy reference of `quantized_affine`."""
    sums = affine(x.astype(float) - x_zero, w.astype(float) - w_zero, base_axis=x.ndim - 1)
    return finished((sums + bias) * scale + (0 if shift is None else shift), **how)


def unpacked(levels, bits):
    """Returns levels of 4 or 8 bits. Two levels of 4 bits share a byte, the first one in its low half."""
    if bits == 4:
        levels = np.stack([levels & 15, levels >> 4], axis=-1).reshape(*levels.shape[:2], -1)
    return levels.astype(float)


def block_quantized_affine(x, levels, scale, zero=None, bits=4, block_size=32, quantize_inputs=False):
    """NumPy reference of `block_quantized_affine`."""
    (n_out, n_blocks), n_in = levels.shape[:2], x.shape[-1]
    zero = np.array(2.0 ** (bits - 1)) if zero is None else zero[..., None]
    weight = (unpacked(levels, bits) - zero) * scale[..., None]
    if quantize_inputs:
        wide = np.zeros((*x.shape[:-1], n_blocks * block_size))
        wide[..., :n_in] = x
        wide = wide.reshape(*x.shape[:-1], n_blocks, block_size)
        step = np.abs(wide).max(-1, keepdims=True) / 127
        whole = np.divide(wide, step, out=np.zeros_like(wide), where=step > 0)
        x = (np.trunc(whole + np.copysign(0.5, whole)) * step).reshape(*x.shape[:-1], n_blocks * block_size)[..., :n_in]
    return x @ weight.reshape(n_out, -1)[:, :n_in].T


def block_rows():
    """Yields rows of `block_quantized_affine`: both widths of levels, blocks that are not full, few and many rows."""
    for batch, n_in, n_out, bits, block in (
        ((2, 3), 40, 17, 4, 16),
        ((9,), 64, 5, 8, 32),
        ((), 100, 33, 4, 32),
        ((3,), 129, 2, 8, 128),
        ((0,), 16, 2, 4, 16),
    ):
        n_blocks = -(-n_in // block)
        levels, scale = uint8(n_out, n_blocks, block * bits // 8), sample(n_out, n_blocks, low=0.5, high=1.5, seed=2)
        args = {"bits": bits, "block_size": block}
        # Quantized exactly, since a number near the middle of two levels could become either.
        x = whole(*batch, n_in, below=255) - 127.0
        x[..., ::block] = 127
        inputs = (x / 128, levels, scale / 2**bits / n_in**0.5)
        zero = whole(n_out, n_blocks, below=2**bits, seed=3).astype(float)
        for quantizes in (False, True):
            way = {**args, "quantize_inputs": quantizes}
            yield Row("block_quantized_affine", inputs, block_quantized_affine, way, by=(), tolerance=1e-5)
            yield Row("block_quantized_affine", (*inputs, zero), block_quantized_affine, way, by=(), tolerance=1e-5)


def quantized_batch_matmul(a, b, a_zero, b_zero, scale, transpose_b=False, **how):
    """NumPy reference of `quantized_batch_matmul`."""
    products = batch_matmul(a.astype(float) - a_zero, b.astype(float) - b_zero, False, transpose_b)
    return finished(products * scale, **how)


def to_levels(x):
    """Quantizes numbers to 8 bits. Returns the levels minus their zero point, and the distance of two levels."""
    least, most = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    scale = (most - least) / 255 or 1.0
    zero = np.rint(-least / scale)
    return np.clip(np.rint(x / scale), -zero, 255 - zero), scale


def quantized_lstm(x, h, c, w, w_zero, w_scale, lengths, bias=None, peephole=None, reverse=False):
    """NumPy reference of `quantized_lstm`: one step after the other."""
    (steps, batch, n_inputs), (n, _, size) = x.shape, h.shape
    y, h, c = np.zeros((steps, n, batch, size)), h.copy(), c.copy()
    n_run = int(lengths.max(initial=0))
    levels, scale = to_levels(x[:n_run])
    weight = w - w_zero.repeat([n_inputs, size], 1).astype(float)
    for k in range(n):
        gates = levels @ weight[k, :n_inputs] * (scale * w_scale[k, 0])
        gates = gates + (0 if bias is None else bias[k])
        last = h[k].copy()
        for i in range(n_run):
            now, distance = to_levels(last)
            sums = now @ weight[k, n_inputs:] * (distance * w_scale[k, 1])
            for at, length in enumerate(lengths):
                if i >= length:
                    last[at] = 0
                    continue
                t = length - 1 - i if reverse or k else i
                given = np.split(sums[at] + gates[t, at], 4)
                of_cells = np.zeros((3, size)) if peephole is None else peephole[k].reshape(3, size)
                opened = 1 / (1 + np.exp(-given[0] - of_cells[0] * c[k, at]))
                kept = 1 / (1 + np.exp(-given[2] - of_cells[2] * c[k, at]))
                c[k, at] = kept * c[k, at] + opened * np.tanh(given[3])
                shown = 1 / (1 + np.exp(-given[1] - of_cells[1] * c[k, at]))
                y[t, k, at] = h[k, at] = last[at] = shown * np.tanh(c[k, at])
    return y, h, c


def lstm_rows():
    """Yields rows of `quantized_lstm`: one and two directions, some lengths, with and without optional inputs."""
    for n, steps, batch, n_inputs, size, way in (
        (1, 5, 1, 6, 16, {}),
        (1, 4, 3, 3, 5, {"reverse": True}),
        (2, 6, 2, 9, 33, {}),
        (1, 2, 2, 1, 1, {}),
        (2, 0, 2, 3, 4, {}),
    ):
        inputs = (
            sample(steps, batch, n_inputs),
            *(sample(n, batch, size, seed=seed) / 2 for seed in (1, 2)),
            int8(n, n_inputs + size, 4 * size, seed=3),
            whole(n, 2, 4 * size, below=9, seed=4) - 4,
            sample(n, 2, 4 * size, low=0.5, high=1.5, seed=5) / 100,
            np.array([steps, steps // 2, 1][:batch]),
        )
        yield Row("quantized_lstm", inputs, quantized_lstm, way, by=())
        optional = (sample(n, 4 * size, seed=6), sample(n, 3 * size, seed=7))
        yield Row("quantized_lstm", (*inputs, *optional), quantized_lstm, way, by=())


def windows(x, kernel, stride):
    """Returns, for each position within a window, the elements of all windows. Channels are last."""
    out = [(x.shape[i - 3] - k) // s + 1 for i, (k, s) in enumerate(zip(kernel, stride, strict=True))]
    return [
        x[..., i : i + (out[0] - 1) * stride[0] + 1 : stride[0], j : j + (out[1] - 1) * stride[1] + 1 : stride[1], :]
        for i, j in np.ndindex(*kernel)
    ]


def max_pooling(x, kernel, stride=None, pad=(0, 0)):
    """NumPy reference of max pooling of levels."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 3) + [(pad[0],) * 2, (pad[1],) * 2, (0, 0)])
    return np.max(windows(x, kernel, stride or kernel), axis=0)


def average_pooling(x, kernel, stride=None, scale=1.0, x_zero=0, **how):
    """NumPy reference of average pooling of levels."""
    return rounded(np.mean(windows(x.astype(float) - x_zero, kernel, stride or kernel), axis=0) * scale, **how)


def padded(x, pad_width, level=0):
    """NumPy reference of padding of levels."""
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    return np.pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, constant_values=level) if x.ndim else x


def dynamic(x):
    """NumPy reference of dynamic quantization. Returns levels, scale and zero point."""
    least, most = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    scale = (most - least) / 255 or 1.0
    zero = int(np.round(-least / scale))
    return rounded(x / scale, zero), np.array(scale), np.array(zero)


def layers():
    """Yields rows of convolutions, affine maps and products. The scale makes sums span some hundred levels."""
    ways = ({}, {"y_zero": 100}, {"y_zero": 7, "least": 7, "most": 200})
    for x, w, args in (
        ((2, 5, 6, 3), (4, 3, 3, 3), {"pad": (1, 1)}),
        ((2, 5, 6, 4), (20, 1, 1, 4), {"stride": (2, 3)}),
        ((1, 2, 7, 9, 1), (70, 2, 3, 1), {"pad": (0, 2), "dilation": (2, 2), "stride": (1, 2)}),
        ((0, 4, 4, 2), (3, 1, 1, 2), {}),
        ((4, 4, 2), (3, 2, 2, 2), {}),
        ((2, 6, 5, 18), (18, 3, 3, 1), {"group": 18, "pad": (1, 1), "stride": (2, 1)}),
    ):
        maps, terms = w[0], int(np.prod(w[1:]))
        for i, way in enumerate(ways):
            n = maps if i % 2 else 1
            inputs = (
                uint8(*x),
                int8(*w, seed=1),
                np.array(120),
                whole(n, below=9, seed=2) - 4,
                whole(maps, below=3000, seed=3) - 1500,
                sample(n, low=0.6, high=1.9, seed=4) / 300 / terms**0.5,
            )
            yield Row("quantized_convolution", inputs, quantized_convolution, {**args, **way}, by=())
    for batch, k, n in (((3,), 8, 5), ((2, 3), 13, 70), ((), 4, 1), ((0,), 3, 2)):
        for i, way in enumerate(ways):
            size = n if i % 2 else 1
            inputs = (
                uint8(*batch, k),
                int8(k, n, seed=1),
                np.array([3]),
                (whole(size, below=9, seed=2) - 4) * (i > 0),
                whole(n, below=3000, seed=3) - 1500,
                sample(size, low=0.6, high=1.9, seed=4) / 300 / k**0.5,
            )
            yield Row("quantized_affine", inputs, quantized_affine, way, by=())
            if not way:
                shifted = (*inputs, sample(n, seed=5))
                yield Row("quantized_affine", shifted, quantized_affine, by=())
    for batch, other, m, k, n in (
        ((2, 1), (2, 3), 5, 8, 3),
        ((), (), 1, 5, 17),
        ((3,), (1,), 2, 3, 2),
        ((0,), (1,), 2, 3, 2),
    ):
        for i, way in enumerate(ways):
            right = (n, k) if i == 1 else (k, n)
            zeros, scale = (np.array(5), np.array([131])), np.array(0.7 / 300 / k**0.5)
            inputs = (uint8(*batch, m, k), uint8(*other, *right, seed=1), *zeros, scale)
            args = {**way, **({"transpose_b": True} if i == 1 else {})}
            yield Row("quantized_batch_matmul", inputs, quantized_batch_matmul, args, by=())


SHAPES = ((2, 3, 4), (), (1,), (0, 3), (5, 1, 17))
"""Shapes for elementwise operations on levels."""

ROWS = [
    *layers(),
    *(
        Row(
            "quantize_uint8",
            (sample(*s, low=-3, high=3), np.array(0.013), np.array(zero)),
            lambda x, scale, zero, **how: rounded(x / scale, int(zero), **how),
            how,
            by=(),
        )
        for s in SHAPES
        for zero, how in ((0, {}), (128, {"least": 20, "most": 250}))
    ),
    *(
        Row(
            "dequantize_uint8",
            (uint8(*s), np.array(0.013), np.array(77)),
            lambda x, scale, zero: (x - float(zero)) * scale,
            by=(),
        )
        for s in SHAPES
    ),
    *(
        Row(
            "quantized_add2",
            (uint8(*s), uint8(*s, seed=1)),
            lambda a, b, a_scale=1.0, b_scale=1.0, a_zero=0, b_zero=0, **how: rounded(
                (a.astype(float) - a_zero) * a_scale + (b.astype(float) - b_zero) * b_scale, **how
            ),
            args,
            by=(),
        )
        for s in SHAPES
        for args in (
            {},
            {"a_scale": 0.713, "b_scale": 0.377, "a_zero": 3, "b_zero": 200, "y_zero": 90, "least": 10, "most": 240},
        )
    ),
    *(
        Row(
            "quantized_mul2",
            (uint8(*s), uint8(*s, seed=1)),
            lambda a, b, scale=1.0, a_zero=0, b_zero=0, **how: rounded(
                (a.astype(float) - a_zero) * (b.astype(float) - b_zero) * scale, **how
            ),
            args,
            by=(),
        )
        for s in SHAPES
        for args in ({}, {"scale": 0.00713, "a_zero": 3, "b_zero": 200, "y_zero": 90, "least": 10, "most": 240})
    ),
    *(
        Row(
            "rescale_uint8",
            (uint8(*s), sample(s[-1], seed=1), sample(s[-1], low=-9, high=9, seed=2)),
            lambda x, scale, shift, x_zero=0, **how: rounded((x.astype(float) - x_zero) * scale + shift, **how),
            args,
            by=(),
        )
        for s in ((2, 3, 4), (1,), (0, 3), (5, 1, 17))
        for args in ({}, {"x_zero": 99, "y_zero": 90, "least": 10, "most": 240})
    ),
    *(Row("lookup_uint8", (uint8(*s), uint8(256, seed=1)), lambda x, table: table[x], by=()) for s in SHAPES),
    *(
        Row("transpose_uint8", (uint8(*s),), lambda x, axes: x.transpose(axes), {"axes": axes}, by=())
        for s, axes in (((2, 3, 4), (2, 0, 1)), ((20, 33), (1, 0)), ((2, 3, 4, 5), (0, 2, 3, 1)), ((0, 3), (1, 0)))
    ),
    *(
        Row("max_pooling_uint8", (uint8(*s),), max_pooling, args, by=())
        for s, args in (
            ((2, 7, 6, 3), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}),
            ((4, 5, 20), {"kernel": (2, 3)}),
            ((0, 4, 5, 2), {"kernel": (2, 2), "stride": (1, 1)}),
            ((1, 2, 5, 5, 1), {"kernel": (1, 3), "pad": (0, 1), "stride": (1, 1)}),
        )
    ),
    *(
        Row("quantized_average_pooling", (uint8(*s),), average_pooling, args, by=())
        for s in ((2, 3, 4, 5), (3, 3, 1), (0, 2, 3, 3))
        for args in (
            {"kernel": (2, 3)},
            {
                "kernel": (1, 2),
                "stride": (2, 1),
                "scale": 1.713,
                "x_zero": 99,
                "y_zero": 90,
                "least": 10,
                "most": 240,
            },
        )
    ),
    *(
        Row(
            "concatenate_uint8",
            (uint8(*a), uint8(*b, seed=1)),
            lambda a, b, axis=-1: np.concatenate([a, b], axis),
            {"axis": axis},
            by=(),
        )
        for a, b, axis in (
            ((2, 3), (2, 5), -1),
            ((2, 3), (4, 3), 0),
            ((2, 1, 3), (2, 4, 3), 1),
            ((0, 3), (0, 2), 1),
            ((2, 0), (2, 3), 1),
        )
    ),
    *(
        Row(
            "slice_uint8",
            (uint8(*s),),
            lambda x, start, stop, axis=0: np.take(x, np.arange(start, stop), axis),
            {"start": start, "stop": stop, "axis": axis},
            by=(),
        )
        for s, start, stop, axis in (
            ((5, 3), 1, 3, 0),
            ((2, 4, 3), 0, 4, 1),
            ((2, 4, 3), 2, 3, -1),
            ((2, 4), 2, 2, 1),
            ((0, 4), 1, 3, 1),
        )
    ),
    *(
        Row(
            "pad_uint8",
            (uint8(*s),),
            padded,
            {"pad_width": pad_width, "level": level},
            by=(),
        )
        for s, pad_width, level in (
            ((2, 4, 3), (1, 0, 0, 2), 77),
            ((2, 4, 3), (2, 1, 0, 3, 1, 0), 255),
            ((), (), 3),
            ((0, 3), (1, 1), 3),
            ((2, 0), (1, 1), 9),
        )
    ),
    *(
        Row("dynamic_quantize_uint8", (x,), dynamic, by=())
        for x in (
            *(sample(*s, low=-1.3, high=2.1) for s in SHAPES),
            sample(40, low=0.5, high=0.9),
            sample(3, 5, low=-9, high=-2),
            np.zeros((2, 3)),
            sample(5, 5000, low=-3, high=3),
        )
    ),
    *lstm_rows(),
    *block_rows(),
]
