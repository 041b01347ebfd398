"""Rows of layers: affine maps, products of matrices, convolutions, pooling."""

from __future__ import annotations

import itertools

import numpy as np

from . import Row, distinct, sample


def affine(x, w, b=None, base_axis=1):
    """NumPy reference of `affine`."""
    base_axis = base_axis % x.ndim if base_axis < 0 else base_axis
    batch = x.shape[:base_axis]
    features = int(np.prod(x.shape[base_axis:]))
    y = x.reshape(*batch, features) @ w.reshape(features, int(np.prod(w.shape[1:])))
    return y.reshape(*batch, *w.shape[1:]) + (0 if b is None else b)


def batch_matmul(a, b, transpose_a=False, transpose_b=False):
    """NumPy reference of `batch_matmul`."""
    return (a.swapaxes(-1, -2) if transpose_a else a) @ (b.swapaxes(-1, -2) if transpose_b else b)


def each(value, n, default):
    """Expands an argument for `n` axes, which may be None or one number, to a tuple of `n` numbers."""
    return (default,) * n if value is None else (value,) * n if np.isscalar(value) else tuple(value)


def taps(kernel, dilation, stride, out):
    """Yields each position in a kernel with the part of the padded input that it reads."""
    for t in itertools.product(*map(range, kernel)):
        yield (
            t,
            tuple(
                slice(i * d, i * d + (o - 1) * s + 1, s) for i, d, s, o in zip(t, dilation, stride, out, strict=True)
            ),
        )


def convolution(x, w, b=None, base_axis=1, pad=None, stride=None, dilation=None, group=1, channel_last=False):
    """NumPy reference of `convolution`, as a sum over the taps of the kernel."""
    if channel_last:
        x, w = np.moveaxis(x, -1, base_axis), np.moveaxis(w, -1, 1)
    kernel, batch = w.shape[2:], x.shape[:base_axis]
    n = len(kernel)
    pad, stride, dilation = each(pad, n, 0), each(stride, n, 1), each(dilation, n, 1)
    x = np.pad(x.reshape(-1, *x.shape[base_axis:]), [(0, 0), (0, 0), *((p, p) for p in pad)])
    out = tuple(
        (i - d * (k - 1) - 1) // s + 1 for i, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    )
    maps, channels = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for g in range(group):
        k, c = slice(g * maps, (g + 1) * maps), slice(g * channels, (g + 1) * channels)
        for t, part in taps(kernel, dilation, stride, out):
            y[:, k] += np.einsum("kc,nc...->nk...", w[(k, slice(None), *t)], x[(slice(None), c, *part)])
    if b is not None:
        y += b.reshape(-1, *(1,) * n)
    y = y.reshape(*batch, *y.shape[1:])
    return np.moveaxis(y, base_axis, -1) if channel_last else y


def modulated(x, w, s, b=None, base_axis=1, channel_last=False, **where):
    """NumPy reference of `modulated_convolution`: input channels are scaled by `s`."""
    n = w.ndim - 2
    s = s.reshape(*s.shape[:-1], *(1,) * n, s.shape[-1]) if channel_last else s.reshape(*s.shape, *(1,) * n)
    return convolution(x * s, w, b, base_axis, channel_last=channel_last, **where)


def deconvolution(
    x, w, b=None, base_axis=1, pad=None, stride=None, dilation=None, group=1, channel_last=False, output_padding=None
):
    """NumPy reference of `deconvolution`."""
    if channel_last:
        x, w = np.moveaxis(x, -1, base_axis), np.moveaxis(w, -1, 1)
    kernel, batch, sizes = w.shape[2:], x.shape[:base_axis], x.shape[base_axis + 1 :]
    n = len(kernel)
    pad, stride, dilation, more = each(pad, n, 0), each(stride, n, 1), each(dilation, n, 1), each(output_padding, n, 0)
    x = x.reshape(-1, *x.shape[base_axis:])
    full = tuple(
        s * (i - 1) + d * (k - 1) + 1 + m for i, k, s, d, m in zip(sizes, kernel, stride, dilation, more, strict=True)
    )
    maps, channels = w.shape[1], w.shape[0] // group
    y = np.zeros((x.shape[0], maps * group, *full))
    for g in range(group):
        k, c = slice(g * maps, (g + 1) * maps), slice(g * channels, (g + 1) * channels)
        for t, part in taps(kernel, dilation, stride, sizes):
            y[(slice(None), k, *part)] += np.einsum("ck,nc...->nk...", w[(c, slice(None), *t)], x[:, c])
    y = y[(slice(None), slice(None), *(slice(p, f - p) for p, f in zip(pad, full, strict=True)))]
    if b is not None:
        y = y + b.reshape(-1, *(1,) * n)
    y = y.reshape(*batch, *y.shape[1:])
    return np.moveaxis(y, base_axis, -1) if channel_last else y


def depthwise(x, w, b=None, base_axis=1, multiplier=1, **where):
    """NumPy reference of `depthwise_convolution`."""
    return convolution(x, w[:, None], b, base_axis, group=x.shape[base_axis], **where)


def depthwise_back(x, w, b=None, base_axis=1, divisor=1, **where):
    """NumPy reference of `depthwise_deconvolution`."""
    return deconvolution(x, w[:, None], b, base_axis, group=x.shape[base_axis] // divisor, **where)


def windows(x, kernel, stride=None, ignore_border=True, pad=None, channel_last=False):
    """Yields, for each output position, its window of `x` and the size of the window including padding."""
    n = len(kernel)
    stride, pad = stride or kernel, each(pad, n, 0)
    sizes = x.shape[-n:]
    if ignore_border:
        out = tuple((i + 2 * p - k) // s + 1 for i, p, k, s in zip(sizes, pad, kernel, stride, strict=True))
    else:
        out = tuple(-(-(i + p) // s) for i, p, s in zip(sizes, pad, stride, strict=True))
    for o in itertools.product(*map(range, out)):
        starts = [j * s - p for j, s, p in zip(o, stride, pad, strict=True)]
        ends = [min(a + k, i + p) for a, k, i, p in zip(starts, kernel, sizes, pad, strict=True)]
        with_pad = int(np.prod([b - a for a, b in zip(starts, ends, strict=True)]))
        part = tuple(slice(max(a, 0), min(b, i)) for a, b, i in zip(starts, ends, sizes, strict=True))
        yield out, o, part, with_pad


def pooled(f):
    """Returns the NumPy reference of a pooling by `f(values, axes, window size with padding)`."""

    def reference(x, kernel, channel_last=False, including_pad=True, **where):
        """NumPy reference of the pooling."""
        n = len(kernel)
        x = np.moveaxis(x, -1, -n - 1) if channel_last else x
        y = None
        for out, o, part, count in windows(x, kernel, **where):
            if y is None:
                y = np.zeros(x.shape[:-n] + out)
            y[(..., *o)] = f(x[(..., *part)], tuple(range(-n, 0)), count if including_pad else None)
        return np.moveaxis(y, -n - 1, -1) if channel_last else y

    return reference


def average(values, axes, count):
    """Returns the mean of a window over `axes`. Divides its sum by `count` if that is given."""
    return values.sum(axes) / (count or np.prod(values.shape[-len(axes) :]))


def max_pooling_backward(gy, x, kernel, channel_last=False, **where):
    """NumPy reference of `max_pooling_backward`."""
    n = len(kernel)
    gy, x = (np.moveaxis(a, -1, -n - 1) if channel_last else a for a in (gy, x))
    gx = np.zeros_like(x)
    for _, o, part, _ in windows(x, kernel, **where):
        for at in np.ndindex(x.shape[:-n]):
            window = x[at][part]
            place = np.unravel_index(np.argmax(window), window.shape)
            gx[at][part][place] += gy[at][o]
    return np.moveaxis(gx, -n - 1, -1) if channel_last else gx


def unpooling(x, kernel, channel_last=False):
    """NumPy reference of `unpooling`."""
    for i, k in enumerate(kernel):
        x = np.repeat(x, k, x.ndim - len(kernel) + i - channel_last)
    return x


def positions(old, new, mode, align_corners, half_pixel, half_pixel_for_nn):
    """Returns the positions on the old axis of the elements of an axis resized from `old` to `new` elements."""
    d = np.arange(new)
    step = (old - 1) / max(new - 1, 1) if align_corners else old / new
    if mode == "nearest" and half_pixel_for_nn:
        at = old / new * (d + 0.5)
    else:
        at = step * (d + 0.5) - 0.5 if half_pixel else step * d
    return np.clip(at, 0, old - 1)


def interpolate(
    x,
    scale=None,
    output_size=None,
    mode="linear",
    align_corners=False,
    half_pixel=False,
    half_pixel_for_nn=False,
    channel_last=False,
):
    """NumPy reference of `interpolate`."""
    n = len(scale or output_size)
    first = x.ndim - n - channel_last
    for i in range(n):
        old = x.shape[first + i]
        new = output_size[i] if scale is None else int(np.floor(scale[i] * old))
        at = positions(old, new, mode, align_corners, half_pixel, half_pixel_for_nn)
        if mode == "nearest":
            x = np.take(x, at.astype(int), first + i)
        else:
            x = np.apply_along_axis(lambda line, at=at, old=old: np.interp(at, np.arange(old), line), first + i, x)
    return x


CONVOLUTIONS = (
    # Shape of the input, shape of the weight, arguments.
    ((2, 2, 5), (3, 2, 3), {}),
    ((2, 2, 5, 4), (3, 2, 3, 3), {"pad": (1, 1)}),
    ((1, 3, 5, 6), (2, 3, 1, 1), {}),
    ((2, 4, 5, 5), (6, 2, 3, 2), {"group": 2, "stride": (2, 1)}),
    ((1, 2, 7, 6), (2, 2, 3, 2), {"dilation": (2, 3), "pad": (2, 0)}),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"pad": (0, 1, 0), "stride": (1, 2, 1)}),
    ((2, 5, 4, 2), (3, 3, 3, 2), {"channel_last": True, "pad": (1, 1)}),
    ((2, 3, 2, 5), (3, 2, 3), {"base_axis": 2}),
    ((0, 2, 5), (3, 2, 3), {}),
    ((1, 1, 1), (1, 1, 1), {}),
    ((1, 1, 6), (2, 1, 3), {"stride": 2, "pad": 1, "dilation": 1}),
)
DECONVOLUTIONS = (
    ((2, 2, 5), (2, 3, 3), {}),
    ((1, 2, 3, 4), (2, 3, 3, 2), {"pad": (1, 0), "stride": (2, 3)}),
    ((1, 4, 3, 3), (4, 2, 2, 2), {"group": 2, "dilation": (2, 1)}),
    ((1, 2, 3), (2, 2, 3), {"stride": (3,), "output_padding": (2,)}),
    ((2, 3, 3, 2), (2, 3, 2, 3), {"channel_last": True}),
    ((2, 3, 2, 4), (2, 2, 3), {"base_axis": 2}),
    ((1, 2, 2, 3, 2), (2, 1, 2, 2, 2), {"stride": (2, 1, 1)}),
    ((0, 2, 5), (2, 3, 3), {}),
)
"""Shape of the input, shape of the weight, arguments."""
DEPTHWISE = (
    ((2, 3, 5), (3, 3), {}),
    ((1, 2, 5, 4), (4, 3, 3), {"multiplier": 2, "pad": (1, 1)}),
    ((1, 2, 6, 5), (2, 2, 3), {"stride": (2, 1), "dilation": (2, 1)}),
    ((2, 2, 3, 5), (3, 2), {"base_axis": 2}),
    ((0, 2, 5), (2, 3), {}),
)
"""Shape of the input, shape of the weight, arguments."""
POOLINGS = (
    ((2, 2, 4, 6), {"kernel": (2, 3)}),
    ((2, 1, 5, 5), {"kernel": (3, 3), "stride": (2, 1)}),
    ((1, 2, 5, 5), {"kernel": (3, 2), "pad": (1, 1), "stride": (1, 2)}),
    ((1, 1, 5, 5), {"kernel": (2, 2), "ignore_border": False}),
    ((1, 1, 5, 6), {"kernel": (3, 3), "ignore_border": False, "pad": (1, 1), "stride": (2, 2)}),
    ((2, 4, 4, 3), {"kernel": (2, 2), "channel_last": True}),
    ((2, 7), {"kernel": (2,), "stride": (3,)}),
    ((1, 4, 4, 4), {"kernel": (2, 2, 2)}),
    ((0, 1, 4, 4), {"kernel": (2, 2)}),
)
"""Shape of the input, arguments."""


def bias_of(w, args, transposed=False):
    """Returns a random bias for a weight of shape `w` and these arguments of its layer."""
    maps = w[-1 if args.get("channel_last") else 1] * args.get("group", 1) if transposed else w[0]
    return sample(maps, seed=2)


def scale_of(x, args):
    """Returns a random scale for each input channel of an input of shape `x`."""
    base = args.get("base_axis", 1)
    return sample(*x[:base], x[-1 if args.get("channel_last") else base], seed=3)


def layer(name, reference, table, transposed=False):
    """Yields the rows of a layer, with and without bias. `table` lists shapes of input and weight, and arguments."""
    for x, w, args in table:
        operands = sample(*x), sample(*w, seed=1)
        yield Row(name, operands, reference, args, tolerance=1e-5)
        yield Row(name, (*operands, bias_of(w, args, transposed)), reference, args, tolerance=1e-5)


ROWS: list[Row] = [
    *(
        Row(
            "affine",
            (sample(*x), sample(*w, seed=1), *(() if b is None else (sample(*b, seed=2),))),
            affine,
            args,
            tolerance=1e-5,
        )
        for x, w, b, args in (
            ((2, 3), (3, 4), None, {}),
            ((2, 3), (3, 4), (4,), {}),
            ((2, 3, 4), (12, 2, 3), (2, 3), {}),
            ((2, 3, 4), (4, 5), (5,), {"base_axis": 2}),
            ((2, 3, 4), (4, 5), (5,), {"base_axis": -1}),
            ((0, 3), (3, 4), (4,), {}),
            ((2, 0), (0, 4), (4,), {}),
            ((1, 1), (1, 1), (1,), {}),
            ((9, 17), (17, 19), (19,), {}),
        )
    ),
    *(
        Row("batch_matmul", (sample(*a), sample(*b, seed=1)), batch_matmul, args, tolerance=1e-5)
        for a, b, args in (
            ((2, 3), (3, 4), {}),
            ((5, 2, 3), (5, 3, 4), {}),
            ((5, 3, 2), (5, 3, 4), {"transpose_a": True}),
            ((5, 2, 3), (5, 4, 3), {"transpose_b": True}),
            ((5, 3, 2), (1, 4, 3), {"transpose_a": True, "transpose_b": True}),
            ((2, 1, 2, 3), (1, 3, 3, 2), {}),
            ((0, 2, 3), (0, 3, 4), {}),
            ((2, 2, 0), (2, 0, 3), {}),
            ((1, 1), (1, 1), {}),
        )
    ),
    *(
        Row("dot", (sample(*a), sample(*b, seed=1)), np.dot, tolerance=1e-5)
        for a, b in (((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((), (2, 3)), ((2, 3, 4), (2, 4, 5)))
    ),
    *layer("convolution", convolution, CONVOLUTIONS),
    *(
        Row("modulated_convolution", (sample(*x), sample(*w, seed=1), scale, *bias), modulated, args, tolerance=1e-5)
        for x, w, args in CONVOLUTIONS
        for scale in [scale_of(x, args)]
        for bias in ((), (bias_of(w, args),))
    ),
    *layer("deconvolution", deconvolution, DECONVOLUTIONS, transposed=True),
    *layer("depthwise_convolution", depthwise, DEPTHWISE),
    *(
        Row(
            "depthwise_deconvolution",
            (sample(*x), sample(*w, seed=1), *(() if b is None else (sample(b, seed=2),))),
            depthwise_back,
            args,
            tolerance=1e-5,
        )
        for x, w, b, args in (
            ((2, 3, 5), (3, 3), None, {}),
            ((2, 3, 5), (3, 3), 3, {}),
            ((1, 4, 5, 4), (4, 3, 3), 2, {"divisor": 2, "pad": (1, 1)}),
            ((1, 2, 3, 4), (2, 2, 3), 1, {"divisor": 2, "stride": (2, 1), "dilation": (2, 1)}),
            ((2, 2, 3, 5), (3, 2), 3, {"base_axis": 2}),
            ((0, 2, 5), (2, 3), 2, {}),
            ((1, 1, 1), (1, 1), 1, {}),
        )
    ),
    *(Row("max_pooling", (distinct(*s),), pooled(lambda v, axes, _: v.max(axes)), args) for s, args in POOLINGS),
    *(Row("sum_pooling", (sample(*s),), pooled(lambda v, axes, _: v.sum(axes)), args) for s, args in POOLINGS),
    *(
        Row("average_pooling", (sample(*s),), pooled(average), args | more)
        for s, args in POOLINGS
        for more in ({}, {"including_pad": False})
    ),
    *(
        Row(
            "max_pooling_backward",
            (sample(*pooled(lambda v, axes, _: v.max(axes))(distinct(*s), **args).shape, seed=3), distinct(*s)),
            max_pooling_backward,
            args,
        )
        for s, args in POOLINGS[:-1]
    ),
    *(
        Row(
            "global_average_pooling",
            (sample(*s),),
            lambda x: x.mean(tuple(range(2, x.ndim))).reshape(*x.shape[:2], 1, 1),
        )
        for s in ((2, 3, 4, 5), (1, 1, 1, 1), (2, 3, 4), (0, 3, 2, 2))
    ),
    *(
        Row("unpooling", (sample(*s),), unpooling, args)
        for s, args in (
            ((2, 3, 2, 2), {"kernel": (2, 3)}),
            ((2, 3), {"kernel": (2,)}),
            ((1, 2, 2, 3), {"kernel": (2, 2), "channel_last": True}),
            ((0, 2, 2), {"kernel": (2, 2)}),
            ((1, 1), {"kernel": (1, 1)}),
        )
    ),
    *(
        Row("interpolate", (sample(*s),), interpolate, args, tolerance=1e-5)
        for s, args in (
            ((2, 3, 4, 5), {"output_size": (7, 3)}),
            ((2, 3, 4, 5), {"scale": (2.0, 1.5)}),
            ((1, 2, 5), {"output_size": (9,), "align_corners": True}),
            ((2, 4, 5), {"output_size": (3, 8), "half_pixel": True}),
            ((2, 4, 5), {"output_size": (3, 8), "mode": "nearest"}),
            ((2, 4, 5), {"output_size": (6, 8), "mode": "nearest", "half_pixel_for_nn": True}),
            ((2, 4, 5, 3), {"output_size": (2, 8), "channel_last": True}),
            ((1, 2, 3, 4), {"output_size": (5, 2, 6)}),
            ((1, 1), {"output_size": (4,), "align_corners": True}),
        )
    ),
]
