"""Rows of operations that draw random numbers. Their references check properties of the drawn values."""

from __future__ import annotations

from itertools import product

import numpy as np

from . import Row, sample


def within(low, high, mean, deviation):
    """Returns a check of drawn numbers: they are in [low, high], and their mean is right to five standard errors."""

    def check(y):
        """Asserts the range and the mean of the numbers."""
        assert np.all((y >= low) & (y <= high))
        if y.size > 100:
            assert abs(y.mean() - mean) < 5 * deviation / np.sqrt(y.size)

    return check


def dropped(x, p=0.5):
    """Returns a check of `dropout`: kept elements are scaled, and the kept fraction matches `p`."""

    def check(y):
        """Asserts the values and the fraction of kept elements."""
        kept = y != 0
        np.testing.assert_allclose(y[kept], (x / (1 - p))[kept], rtol=1e-6)
        if x.size > 100:
            assert abs(kept.mean() - (1 - p)) <= 5 * np.sqrt(p * (1 - p) / x.size)

    return check


def erased(
    x,
    prob=0.5,
    area_ratios=(0.02, 0.4),
    replacements=(0.0, 255.0),
    share=True,
    base_axis=1,
    channel_last=False,
    **_,
):
    """Returns a check of `random_erase`: patches hold numbers in range, at the same place in all channels if shared."""

    def check(y):
        """Asserts the values and the positions of the patches."""
        changed = np.abs(y - x) > 1e-6
        low, high = replacements
        assert np.all((y[changed] >= low - 1e-6) & (y[changed] <= high + 1e-6))
        if prob == 0:
            assert not changed.any()
        if prob == 1 and x.size:
            assert changed.any()
        if share and changed.size:
            axis = -1 if channel_last else base_axis
            np.testing.assert_array_equal(changed.all(axis), changed.any(axis))

    return check


def chosen(x, w, shape=(), replace=True, seed=-1):
    """Returns a check of `random_choice`: samples have positive weight, match the weights, and may have to be
    unique."""

    def check(y):
        """Asserts the shape and the frequencies of the samples."""
        assert y.shape == (*x.shape[:-1], *(shape or (1,)))
        if not y.size:
            return
        populations = x.reshape(-1, x.shape[-1]), w.reshape(-1, w.shape[-1])
        for values, weights, samples in zip(*populations, y.reshape(len(populations[0]), -1), strict=True):
            index = np.abs(samples[:, None] - values).argmin(1)
            np.testing.assert_allclose(samples, values[index], rtol=1e-6)
            assert np.all(weights[index] > 0)
            if not replace:
                assert len(set(index)) == len(index)
            elif samples.size > 100:
                share = weights / weights.sum()
                counts = np.bincount(index, minlength=len(values)) / samples.size
                assert np.all(np.abs(counts - share) <= 5 * np.sqrt(share * (1 - share) / samples.size))

    return check


def moved(places):
    """Returns the reference of an operation that moves each sample on its own.

    `places` yields all results of one sample.
    """

    def reference(x, base_axis=1, **args):
        """Returns the check of the output for the input `x`."""

        def check(y):
            """Asserts that each sample is one of the possible arrays."""
            base = base_axis % x.ndim
            xs, ys = x.reshape(-1, *x.shape[base:]), y.reshape(-1, *y.shape[base:])
            for before, after in zip(xs, ys, strict=True):
                assert any(np.allclose(after, place, rtol=1e-6, atol=1e-6) for place in places(before, **args))

        return check

    return reference


def together(ways):
    """Returns the reference of an operation that also moves the axes before `base_axis`.

    `ways` yields orders of one axis.
    """

    def reference(x, base_axis=1, **args):
        """Returns the check of the output for the input `x`."""
        base = base_axis % x.ndim

        def fits(before, after, axis):
            """True if `after` is `before` in one of the possible orders, from `axis` on."""
            chosen = ways(axis - x.ndim, before.shape[0], after.shape[0], **args)
            if axis < base:
                pairs = lambda way: zip(way, after, strict=True)  # noqa: E731
                return any(all(fits(before[j], part, axis + 1) for j, part in pairs(way)) for way in chosen)
            own = [
                list(ways(a - x.ndim, n, m, **args))
                for a, n, m in zip(range(axis, x.ndim), before.shape, after.shape, strict=True)
            ]
            return any(np.allclose(after, before[np.ix_(*places)], rtol=1e-6) for places in product(*own))

        def check(y):
            """Asserts that the output is one of the possible arrays."""
            assert fits(x, y, 0)

        return check

    return reference


def windows(axis, n, m, shape=None, seed=-1):
    """Returns the windows that a random crop may choose: all runs of `m` of the axis's `n` indices."""
    assert m == (shape[axis] if -axis <= len(shape) else n)
    return [range(start, start + m) for start in range(n - m + 1)]


def turns(axis, n, m, axes=None, seed=-1):
    """Returns the orders of the indices of an axis: ascending, and also descending if the axis is among `axes`."""
    return [range(n), range(n - 1, -1, -1)] if axis in axes else [range(n)]


def crops(x, shape=None, seed=-1):
    """Yields every crop of `x` to this shape."""
    sizes = x.shape[: x.ndim - len(shape or ())] + tuple(shape or ())
    sizes = sizes[-x.ndim :] if x.ndim else ()
    for start in np.ndindex(*(n - m + 1 for n, m in zip(x.shape, sizes, strict=True))):
        yield x[tuple(slice(i, i + m) for i, m in zip(start, sizes, strict=True))]


def flips(x, axes=None, seed=-1):
    """Yields `x` with every combination of flipped axes."""
    axes = [-1] if axes is None else [a if a < 0 else a - x.ndim - 1 for a in axes]
    for tosses in np.ndindex(*[2] * len(axes)):
        yield np.flip(x, [a for a, toss in zip(axes, tosses, strict=True) if toss])


def shifts(x, shifts=None, border_mode="nearest", constant_value=0.0, seed=-1):
    """Yields `x` with every shift up to `shifts` along each axis."""
    mode = {"nearest": {"mode": "edge"}, "reflect": {"mode": "symmetric"}}.get(
        border_mode, {"mode": "constant", "constant_values": constant_value}
    )
    most = [0] * (x.ndim - len(shifts or ())) + list(shifts or ())
    padded = np.pad(x, [(m, m) for m in most], **mode)
    for start in np.ndindex(*(2 * m + 1 for m in most)):
        yield padded[tuple(slice(i, i + n) for i, n in zip(start, x.shape, strict=True))]


def augmented(x, shape=None, **args):
    """Returns a check of `image_augmentation`: the range of an image widens only by contrast and brightness."""

    def check(y):
        """Asserts shape and range of the image."""
        lead = x.ndim - len(shape or x.shape)
        assert y.shape == x.shape[:lead] + tuple(shape or x.shape)
        gain, more = args.get("contrast", 1.0), args.get("brightness", 0.0)
        noise = 8 * args.get("noise", 0.0)
        if x.size:
            reach = np.abs(x - args.get("contrast_center", 0.0)).max() + more
            assert np.all(np.abs(y - args.get("contrast_center", 0.0)) <= gain * reach + noise + 1e-5)
        if set(args) <= {"seed", "flip_lr", "flip_ud"} and (shape is None or tuple(shape) == x.shape[lead:]):
            planes = zip(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *x.shape[-2:]), strict=True)
            for before, after in planes:
                turned = [before, before[:, ::-1], before[::-1], before[::-1, ::-1]]
                allowed = turned[:1] + turned[1:2] * bool(args.get("flip_lr")) + turned[2:3] * bool(args.get("flip_ud"))
                allowed += turned[3:] * bool(args.get("flip_lr") and args.get("flip_ud"))
                assert any(np.allclose(after, one, atol=1e-5) for one in allowed)

    return check


def drawn(name, check, **args):
    """Returns rows of several shapes for a random generator without inputs. `check` checks the drawn numbers."""
    return [
        Row(name, (), lambda **_: check, {"shape": shape, **args}, random=True)
        for shape in ((40, 50), (), (0, 3), (2, 1, 7))
    ]


ROWS: list[Row] = [
    *(
        Row("dropout", (sample(*s, away=(0.0,)),), lambda x, p=0.5, seed=-1: dropped(x, p), args, random=True)
        for s in ((20, 50), (), (1,), (0, 3))
        for args in ({}, {"p": 0.2}, {"p": 0.0}, {"p": 0.7, "seed": 5})
    ),
    *drawn("rand", within(0, 1, 0.5, 12**-0.5)),
    *drawn("rand", within(-1, 3, 1, 4 * 12**-0.5), low=-1.0, high=3.0, seed=7),
    *drawn("randn", within(-6, 6, 0, 1)),
    *drawn("randn", within(-10, 14, 2, 2), mu=2.0, sigma=2.0, seed=7),
    *drawn("randint", within(0, 0, 0, 0.1)),
    *drawn("randint", within(-2, 4, 1, 2), low=-2, high=5, seed=7),
    *drawn("rand_binomial", within(0, 1, 0.5, 0.5)),
    *drawn("rand_binomial", within(0, 10, 3, 2.1**0.5), n=10, p=0.3, seed=7),
    *drawn("rand_gamma", within(0, 40, 0.5, 0.5**0.5)),
    *drawn("rand_gamma", within(0, 80, 6, 12**0.5), k=3.0, theta=2.0, seed=7),
    *drawn("rand_beta", within(0, 1, 0.5, 8**-0.5)),
    *drawn("rand_beta", within(0, 1, 2 / 3, (2 / 36) ** 0.5), alpha=2.0, beta=1.0, seed=7),
    *(
        Row("random_erase", (sample(*s) + 10,), erased, args, random=True)
        for s, args in (
            ((3, 2, 6, 8), {}),
            ((3, 2, 6, 8), {"prob": 1.0, "n": 2, "replacements": (-1.0, 1.0), "seed": 3}),
            ((3, 6, 8, 2), {"prob": 1.0, "channel_last": True, "area_ratios": (0.1, 0.2), "aspect_ratios": (0.5, 2.0)}),
            ((2, 6, 8), {"prob": 1.0, "base_axis": 0, "share": False}),
            ((3, 2, 6, 8), {"prob": 1.0, "ste_fine_grained": False}),
            ((3, 2, 6, 8), {"prob": 0.0}),
            ((0, 2, 6, 8), {}),
        )
    ),
    *(
        Row("random_choice", (sample(*s), sample(*s, low=0.01, high=1, seed=1)), chosen, args, random=True)
        for s, args in (
            ((2, 5), {}),
            ((3, 4), {"shape": (20, 30)}),
            ((4,), {"shape": (500,), "seed": 3}),
            ((2, 3, 6), {"shape": (2, 3), "replace": False}),
            ((1,), {"shape": (1,), "replace": False}),
            ((0, 3), {"shape": (2,)}),
            ((3, 4), {"shape": (0,)}),
        )
    ),
    *(
        Row("random_crop", (sample(*s),), moved(crops), args, random=True)
        for s, args in (
            ((5, 2, 6, 7), {"shape": (4, 5)}),
            ((5, 2, 6, 7), {"shape": (2, 3, 7), "seed": 5}),
            ((2, 3, 4), {"shape": (2,), "base_axis": 2}),
            ((2, 3), {}),
            ((0, 3, 4), {"shape": (2, 2)}),
            ((1, 1), {"shape": (1,)}),
        )
    ),
    *(
        Row("random_crop", (sample(*s),), together(windows), args, random=True)
        for s, args in (
            ((4, 3, 5), {"shape": (2, 2, 3), "base_axis": 2}),
            ((4, 3, 5), {"shape": (3, 3, 2), "seed": 5}),
            ((4, 3, 5), {"shape": (2, 3), "base_axis": -1}),
            ((2, 3, 4), {"shape": (0, 3, 4)}),
        )
    ),
    *(
        Row("random_flip", (sample(*s),), together(turns), args, random=True)
        for s, args in (
            ((4, 3, 5), {"axes": (-1, -2, -3), "base_axis": 2}),
            ((4, 3, 5), {"axes": (-3, -1), "seed": 5}),
            ((4, 3, 5), {"axes": (-2,), "base_axis": -1}),
        )
    ),
    *(
        Row("random_flip", (sample(*s),), moved(flips), args, random=True)
        for s, args in (
            ((5, 2, 6, 7), {}),
            ((5, 2, 6, 7), {"axes": (2, 3), "seed": 5}),
            ((4, 3, 5), {"axes": (-1,), "base_axis": 2}),
            ((0, 3, 4), {}),
            ((1, 1), {}),
        )
    ),
    *(
        Row("random_shift", (sample(*s),), moved(shifts), args, random=True)
        for s, args in (
            ((5, 2, 6, 7), {"shifts": (1, 2)}),
            ((5, 2, 6, 7), {"shifts": (2, 1), "border_mode": "reflect", "seed": 5}),
            ((5, 2, 6, 7), {"shifts": (2, 1), "border_mode": "constant", "constant_value": -7.0}),
            ((4, 3, 5), {"shifts": (3,), "base_axis": 2}),
            ((2, 3), {}),
            ((0, 3, 4), {"shifts": (1, 1)}),
        )
    ),
    *(
        Row("image_augmentation", (sample(*s),), augmented, args, by=(), random=True)
        for s, args in (
            ((3, 3, 8, 9), {"flip_lr": True, "flip_ud": True}),
            ((3, 3, 8, 9), {"flip_lr": True, "seed": 7}),
            ((2, 3, 8, 9), {"shape": (3, 6, 5), "pad": (2, 1), "min_scale": 0.8, "max_scale": 1.5, "angle": 0.4}),
            ((2, 3, 8, 9), {"shape": (6, 12), "aspect_ratio": 1.3, "distortion": 0.2}),
            ((2, 3, 8, 9), {"brightness": 0.3, "contrast": 1.4, "contrast_center": 0.5, "noise": 0.1}),
            ((2, 3, 8, 9), {"brightness": 0.3, "brightness_each": True, "contrast": 1.4, "contrast_each": True}),
            ((8, 9), {"shape": (4, 4)}),
            ((1, 1, 1, 1), {"angle": 0.1}),
            ((0, 3, 8, 9), {"noise": 0.1}),
        )
    ),
]
