"""Rows of operations that draw random numbers; their references look at what was drawn."""

from __future__ import annotations

import numpy as np

from . import Row, sample


def within(low, high, mean, deviation):
    """A check that numbers lie in a range and that their mean is right, to five standard errors."""

    def check(y):
        assert np.all((y >= low) & (y <= high))
        if y.size > 100:
            assert abs(y.mean() - mean) < 5 * deviation / np.sqrt(y.size)

    return check


def dropped(x, p=0.5):
    def check(y):
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
    """Patches hold numbers from a range, on the same places of all channels if those share them."""

    def check(y):
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


def drawn(name, check, **args):
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
]
