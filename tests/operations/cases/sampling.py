"""Rows of image sampling (warping, RoI alignment, resizing, correlation) and of detected boxes."""

from __future__ import annotations

import itertools

import numpy as np

from . import Row, sample


def places(size, align_corners):
    """Returns the homogeneous positions (x, y, z, 1) of all elements of an image, between -1 and 1."""
    axes = []
    for n in size:
        i = np.arange(n)
        axes.append(2 * i / (n - 1) - 1 if align_corners and n > 1 else (2 * i + 1) / n - 1)
    return np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size)], -1)


def affine_grid(theta, size, align_corners=False):
    """NumPy reference of `affine_grid`."""
    return np.einsum("nij,...j->n...i", theta, places(size, align_corners))


def reflected(at, low, high):
    """Reflects positions at both bounds until they are within them."""
    width = high - low
    if width <= 0:
        return np.full_like(at, low)
    turn = (at - low) % (2 * width)
    return low + np.where(turn > width, 2 * width - turn, turn)


def settled(at, n, padding_mode, align_corners):
    """Moves positions outside of an axis of `n` elements into it, as the padding mode says."""
    if padding_mode == "zero":
        return at
    if padding_mode == "reflect":
        at = reflected(at, 0, n - 1) if align_corners else reflected(at, -0.5, n - 0.5)
    return np.clip(at, 0, n - 1)


def looked_up(x, at, nearest=False):
    """Interpolates images (n, channels, spatial...) at positions (n, out..., axes), given in elements in axis order."""
    axes = at.shape[-1]
    base = np.trunc(at + np.copysign(0.5, at)) if nearest else np.floor(at)
    share = at - base
    y = np.zeros(x.shape[:2] + at.shape[1:-1])
    for corner in itertools.product(*[(0,) if nearest else (0, 1)] * axes):
        i = (base + corner).astype(int)
        weight = 1.0 if nearest else np.where(np.array(corner) == 1, share, 1 - share).prod(-1)
        inside = np.all((i >= 0) & (i < x.shape[2:]), -1)
        i = np.where(inside[..., None], i, 0)
        for n in range(len(x)):
            y[n] += x[n][(slice(None), *np.moveaxis(i[n], -1, 0))] * (inside * weight)[n]
    return y


def warp_by_grid(x, grid, mode="linear", padding_mode="zero", align_corners=False, channel_last=False):
    """NumPy reference of `warp_by_grid`."""
    x = np.moveaxis(x, -1, 1) if channel_last else x
    sizes = np.array(x.shape[2:])
    at = grid[..., ::-1]
    at = (at + 1) * (sizes - 1) / 2 if align_corners else ((at + 1) * sizes - 1) / 2
    at = np.stack([settled(at[..., a], n, padding_mode, align_corners) for a, n in enumerate(sizes)], -1)
    y = looked_up(x, at, mode == "nearest")
    return np.moveaxis(y, 1, -1) if channel_last else y


def warp_by_flow(data, flow):
    """NumPy reference of `warp_by_flow`."""
    rows, columns = np.indices(data.shape[2:])
    at = np.stack([rows + flow[:, 1], columns + flow[:, 0]], -1)
    return looked_up(data, np.clip(at, 0, np.array(data.shape[2:]) - 1))


def grid(*shape, seed=0):
    """Returns random positions that are near neither an element nor a midpoint of axes of 3, 4, 5 or 6 elements."""
    g = sample(*shape, low=-1.4, high=1.4, seed=seed)
    for n in (3, 4, 5, 6):
        for scale in (n / 2, (n - 1) / 2):
            for shift in (0.0, 0.5):
                at = g * scale * 2 + shift
                near = np.abs(at - np.round(at)) < 0.02
                g = np.where(near, g + 0.03 / scale, g)
    return g


def roi_align(x, boxes, output_size, spatial_scale=(1.0, 1.0), sampling_ratio=-1, channel_last=False):
    """NumPy reference of `roi_align`."""
    x = np.moveaxis(x, -1, 1) if channel_last else x
    h, w = x.shape[2:]
    y = np.zeros((len(boxes), x.shape[1], *output_size))
    for k, (n, x1, y1, x2, y2) in enumerate(boxes):
        low = np.array([y1, x1]) * spatial_scale - 0.5
        step = (np.array([y2, x2]) * spatial_scale - 0.5 - low) / output_size
        count = [sampling_ratio] * 2 if sampling_ratio > 0 else np.ceil(step).astype(int)
        for at in np.ndindex(*output_size):
            for point in np.ndindex(*count):
                place = low + step * (np.array(at) + (np.array(point) + 0.5) / count)
                if np.all((place >= -1) & (place <= (h, w))):
                    place = np.clip(place, 0, (h - 1, w - 1))
                    y[(k, slice(None), *at)] += looked_up(x[int(n)][None], place[None])[0] / np.prod(count)
    return np.moveaxis(y, 1, -1) if channel_last else y


def deformable_convolution(x, w, offset, mask=None, b=None, base_axis=1, group=1, deformable_group=1, **how):
    """NumPy reference of `deformable_convolution`."""
    pad, stride, dilation = (how.get(k) or (v, v) for k, v in (("pad", 0), ("stride", 1), ("dilation", 1)))
    batch, kernel = x.shape[:base_axis], w.shape[2:]
    x = x.reshape(-1, *x.shape[base_axis:])
    out = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(x.shape[2:], kernel, pad, stride, dilation, strict=True)
    )
    if offset.shape[base_axis + 1 :] != out:  # offsets may cover all image positions, with every stride-th used
        places = (..., *(slice(0, (n - 1) * s + 1, s) for n, s in zip(out, stride, strict=True)))
        offset, mask = offset[places], None if mask is None else mask[places]
    offset = offset.reshape(len(x), deformable_group, *kernel, 2, *out)
    mask = np.ones(offset.shape[:4] + out) if mask is None else mask.reshape(offset.shape[:4] + out)
    each = x.shape[1] // deformable_group
    read = np.zeros((*x.shape[:2], *kernel, *out))
    for d, i, j in np.ndindex(deformable_group, *kernel):
        at = np.indices(out) * np.reshape(stride, (2, 1, 1)) - np.reshape(pad, (2, 1, 1))
        at = at + np.reshape(np.multiply((i, j), dilation), (2, 1, 1)) + offset[:, d, i, j]
        channels = slice(d * each, (d + 1) * each)
        values = looked_up(x[:, channels], np.moveaxis(at, 1, -1))
        read[:, channels, i, j] = values * mask[:, d, i, j][:, None]
    parts = zip(np.split(w, group), np.split(read, group, 1), strict=True)
    y = np.concatenate([np.einsum("kcij,ncij...->nk...", w, r) for w, r in parts], 1)
    return (y + (0 if b is None else b[:, None, None])).reshape(*batch, *y.shape[1:])


def offsets(*shape):
    """Returns random offsets whose fractions are between 0.1 and 0.9, away from the kinks at elements."""
    x = sample(*shape, low=-1.5, high=1.5, seed=5)
    return np.floor(x) + 0.1 + 0.8 * (x - np.floor(x))


def onnx_resize(x, scales=(), sizes=(), mode="nearest", coordinate_transformation_mode="half_pixel", **_):
    """NumPy reference of `onnx_resize` for its simple modes."""
    sizes = sizes or tuple(int(n * s) for n, s in zip(x.shape, scales, strict=True))
    for axis, (n, to) in enumerate(zip(x.shape, sizes, strict=True)):
        scale = scales[axis] if scales else to / n
        at = (
            np.arange(to) / scale
            if coordinate_transformation_mode == "asymmetric"
            else (np.arange(to) + 0.5) / scale - 0.5
        )
        if mode == "nearest":
            x = np.take(x, np.clip(np.ceil(at - 0.5), 0, n - 1).astype(int), axis)
        else:
            x = np.apply_along_axis(lambda line, at=at, n=n: np.interp(at, np.arange(n), line), axis, x)
    return x


def patch_correlation(a, b, patch=(1, 1), shift=(0, 0), patch_step=(1, 1), shift_step=(1, 1), padding=(0, 0, 0, 0)):
    """NumPy reference of `patch_correlation`."""
    top, bottom, left, right = padding
    more = [(0, 0), (shift[0], shift[0]), (shift[1], shift[1]), (0, 0)]
    a, b = (np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)]) for x in (a, b))
    n, h, w, _ = a.shape
    b = np.pad(b, more)
    starts = [range(0, size - p + 1, s) for size, p, s in zip((h, w), patch, patch_step, strict=True)]
    moves = [range(0, 2 * m + 1, s) for m, s in zip(shift, shift_step, strict=True)]
    y = np.zeros((n, *map(len, starts), *map(len, moves)))
    for (r, i), (c, j) in itertools.product(*map(enumerate, starts)):
        one = a[:, i : i + patch[0], j : j + patch[1]]
        for (k, u), (m, v) in itertools.product(*map(enumerate, moves)):
            y[:, r, c, k, m] = (one * b[:, i + u : i + u + patch[0], j + v : j + v + patch[1]]).sum((1, 2, 3))
    return y


def adaptive_separable_convolution(x, v, u):
    """NumPy reference of `adaptive_separable_convolution`."""
    h, w = x.shape[2] - v.shape[1] + 1, x.shape[3] - u.shape[1] + 1
    y = np.zeros((*x.shape[:2], h, w))
    for j, i in itertools.product(range(v.shape[1]), range(u.shape[1])):
        y += (v[:, j, :h, :w] * u[:, i, :h, :w])[:, None] * x[:, :, j : j + h, i : i + w]
    return y


def overlap(a, b):
    """Returns the intersection over union of two boxes (x, y, width, height)."""
    w, h = (
        min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2) - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2) for i in (0, 1)
    )
    return w * h / (a[2] * a[3] + b[2] * b[3] - w * h) if w > 0 and h > 0 else 0.0


def nms_detection(x, thresh=0.5, nms=0.45, nms_per_class=True):
    """NumPy reference of `nms_detection2d`."""
    y = x.copy()
    y[..., 4] = np.where(x[..., 4] < thresh, 0, x[..., 4])
    scores = y[..., 4:5] * x[..., 5:]
    y[..., 5:] = np.where(scores < thresh, 0, scores)
    for boxes in y:
        for k in range(5, x.shape[-1]) if nms_per_class else (4,):
            best = [i for i in np.argsort(-boxes[:, k], kind="stable") if boxes[i, k] != 0]
            gone = set()
            for at, i in enumerate(best):
                if nms_per_class and i in gone:
                    continue
                gone |= {j for j in best[at + 1 :] if overlap(boxes[i], boxes[j]) > nms}
            for i in gone:
                boxes[i, k : k + 1 if nms_per_class else None] = 0
    return y


SUPPRESSION = ("center_point_box", "max_output_boxes_per_class", "iou_threshold", "score_threshold")
"""Names of the arguments of non-maximum suppression, in order."""


def chosen_boxes(x, center_point_box=0, max_output_boxes_per_class=0, iou_threshold=0.0, score_threshold=0.0):
    """NumPy reference of `onnx_non_max_suppression`."""
    x, scores = x[..., :4], np.swapaxes(x[..., 4:], 1, 2)
    a, b = x[..., :2], x[..., 2:]
    low, high = (a - b / 2, a + b / 2) if center_point_box else (np.minimum(a, b), np.maximum(a, b))
    area, found = (high - low).prod(-1), []
    for n, k in itertools.product(*map(range, scores.shape[:2])):
        kept = []
        for i in np.argsort(-scores[n, k], kind="stable"):
            sides = np.minimum(high[n, kept], high[n, i]) - np.maximum(low[n, kept], low[n, i])
            common = np.clip(sides, 0, None).prod(-1)
            free = np.all(common <= iou_threshold * (area[n, kept] + area[n, i] - common))
            if scores[n, k, i] > score_threshold and len(kept) < max_output_boxes_per_class and free:
                kept.append(i)
        found += [(n, k, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def boxes(*shape):
    """Returns detected boxes with scores."""
    x = sample(*shape, low=0.2, high=1.0)
    x[..., :4] = sample(*shape[:-1], 4, low=0.3, high=0.7, seed=2)
    return x


WARPS = (
    ((2, 3, 4, 5), (2, 3, 6, 2)),
    ((1, 2, 3, 4, 5), (1, 2, 3, 2, 3)),
    ((1, 1, 1, 1), (1, 1, 1, 2)),
    ((0, 2, 4, 5), (0, 2, 3, 2)),
)
"""Shape of the input and shape of the grid."""

ROWS: list[Row] = [
    *(
        Row("affine_grid", (sample(*s),), affine_grid, args, tolerance=5e-6)
        for s, args in (
            ((2, 2, 3), {"size": (3, 4)}),
            ((2, 2, 3), {"size": (3, 4), "align_corners": True}),
            ((1, 3, 4), {"size": (2, 3, 4)}),
            ((2, 2, 3), {"size": (1, 2), "align_corners": False}),
            ((0, 2, 3), {"size": (3, 4)}),
        )
    ),
    *(
        Row(
            "warp_by_grid",
            (sample(*x), grid(*g)),
            warp_by_grid,
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
            by=(0, 1) if mode == "linear" else (0,),
            second=False,
            tolerance=2e-5,
        )
        for x, g in WARPS
        for mode in ("linear", "nearest")
        for padding in ("zero", "repeat", "reflect")
        for corners in (False, True)
    ),
    Row(
        "warp_by_grid",
        (sample(2, 4, 5, 3), grid(2, 3, 6, 2)),
        warp_by_grid,
        {"channel_last": True},
        second=False,
        tolerance=2e-5,
    ),
    Row("warp_by_grid", (sample(2, 3, 4, 5), grid(2, 3, 6, 2)), warp_by_grid, by=(0,), tolerance=2e-5),
    *(
        Row("warp_by_flow", (sample(*s), grid(s[0], 2, *s[2:]) * 2 + 0.011), warp_by_flow, second=False, tolerance=2e-5)
        for s in ((2, 3, 4, 5), (1, 1, 1, 3), (0, 2, 3, 4))
    ),
    *(
        Row("roi_align", (sample(*s), np.array(at)), roi_align, args, by=(0,), tolerance=1e-5)
        for s, at, args in (
            ((2, 3, 6, 7), [[0, 0.3, 0.4, 4.1, 5.2], [1, 1.2, 2.1, 6.9, 5.7]], {"output_size": (2, 3)}),
            (
                (2, 3, 6, 7),
                [[1, 0.11, 0.12, 0.52, 0.83], [0, -0.2, 0.1, 1.3, 1.2]],
                {"output_size": (2, 2), "spatial_scale": (6.0, 7.0), "sampling_ratio": 2},
            ),
            ((1, 6, 7, 2), [[0, 0.3, 0.4, 4.1, 5.2]], {"output_size": (3, 1), "channel_last": True}),
            ((1, 1, 1, 1), [[0, 0.0, 0.0, 1.0, 1.0]], {"output_size": (1, 1)}),
            ((1, 2, 3, 4), np.zeros((0, 5)), {"output_size": (2, 2)}),
        )
    ),
    *(
        Row(
            "deformable_convolution",
            (sample(*x), sample(*w, seed=1), offsets(*o), m and sample(*m, seed=2), b and sample(*b, seed=3)),
            deformable_convolution,
            args,
            second=False,
            tolerance=1e-5,
        )
        for x, w, o, m, b, args in (
            ((2, 2, 4, 5), (3, 2, 2, 2), (2, 8, 3, 4), None, None, {}),
            (
                (1, 4, 5, 4),
                (2, 2, 3, 2),
                (1, 24, 3, 2),
                (1, 12, 3, 2),
                (2,),
                {"pad": (1, 1), "stride": (2, 2), "dilation": (1, 2), "group": 2, "deformable_group": 2},
            ),
            ((1, 2, 1, 3, 3), (1, 1, 2, 2), (1, 2, 8, 2, 2), (1, 2, 4, 2, 2), None, {"base_axis": 2}),
            ((0, 2, 4, 5), (3, 2, 2, 2), (0, 8, 3, 4), None, (3,), {"channel_last": False}),
            ((2, 2, 4, 5), (3, 2, 2, 2), (2, 8, 4, 5), None, None, {}),
            ((2, 2, 6, 7), (3, 2, 3, 3), (2, 18, 6, 7), (2, 9, 6, 7), (3,), {"pad": (1, 1), "stride": (2, 3)}),
        )
    ),
    Row(
        "deformable_convolution",
        (sample(2, 2, 4, 5), sample(3, 2, 2, 2, seed=1), offsets(2, 8, 3, 4), sample(2, 4, 3, 4, seed=2)),
        deformable_convolution,
        by=(0, 1, 3),
        second=False,
        tolerance=1e-5,
    ),
    *(
        Row("onnx_resize", (sample(*s),), onnx_resize, args, tolerance=1e-5)
        for s, args in (
            ((1, 2, 4, 5), {"scales": (1.0, 1.0, 1.7, 0.6)}),
            ((1, 2, 4, 5), {"sizes": (1, 2, 3, 9), "mode": "linear"}),
            ((4, 5), {"scales": (2.0, 0.5), "mode": "linear", "coordinate_transformation_mode": "asymmetric"}),
            ((5,), {"sizes": (3,), "mode": "linear"}),
            ((1, 1), {"sizes": (2, 3)}),
        )
    ),
    *(
        Row("patch_correlation", (sample(*s), sample(*s, seed=1)), patch_correlation, args, tolerance=1e-5)
        for s, args in (
            ((2, 3, 4, 2), {}),
            ((2, 4, 5, 3), {"patch": (2, 3), "patch_step": (2, 1)}),
            ((1, 4, 5, 2), {"patch": (3, 1), "shift": (1, 2), "shift_step": (1, 2), "padding": (1, 0, 2, 1)}),
            ((1, 1, 1, 1), {"shift": (1, 1)}),
            ((0, 3, 4, 2), {"patch": (2, 2)}),
        )
    ),
    *(
        Row(
            "onnx_non_max_suppression",
            (boxes(*s),),
            chosen_boxes,
            dict(zip(SUPPRESSION, args, strict=False)),
            by=(),
        )
        for s in ((2, 9, 7), (1, 1, 5), (0, 3, 6), (1, 0, 6), (1, 4, 4))
        for args in ((0, 3, 0.3, 0.4), (1, 9, 0.5, 0.5), (1, 1, 1.0), (0,))
    ),
    *(
        Row(
            "adaptive_separable_convolution",
            (sample(*x), sample(*v, seed=1), sample(*u, seed=2)),
            adaptive_separable_convolution,
            tolerance=1e-5,
        )
        for x, v, u in (
            ((2, 3, 5, 6), (2, 3, 3, 5), (2, 2, 3, 5)),
            ((1, 2, 4, 4), (1, 2, 4, 4), (1, 4, 4, 4)),
            ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
            ((0, 2, 4, 4), (0, 2, 3, 2), (0, 3, 3, 2)),
        )
    ),
    *(
        Row("nms_detection2d", (boxes(*s),), nms_detection, args, gradient=lambda gy, x: (np.zeros_like(x),))
        for s in ((2, 9, 8), (1, 1, 6), (0, 3, 7), (1, 0, 6))
        for args in ({"thresh": 0.2, "nms": 0.3}, {"thresh": 0.2, "nms": 0.3, "nms_per_class": False}, {})
    ),
]
