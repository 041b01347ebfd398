"""Rows of normalizations."""

from __future__ import annotations

import numpy as np

from . import Row, sample


def normalize(x, over, beta, gamma, eps=1e-5, output_stat=False):
    mean, variance = x.mean(over, keepdims=True), x.var(over, keepdims=True)
    y = (x - mean) / np.sqrt(variance + eps) * (1 if gamma is None else gamma) + (0 if beta is None else beta)
    return (y, mean, variance) if output_stat else y


def others(x, axes):
    axes = {a % x.ndim for a in np.atleast_1d(axes)}
    return tuple(a for a in range(x.ndim) if a not in axes)


def batch(
    x, beta=None, gamma=None, mean=None, variance=None, axes=(1,), decay_rate=0.9, batch_stat=True, eps=1e-5, **how
):
    if batch_stat:
        return normalize(x, others(x, axes), beta, gamma, eps, how.get("output_stat") or how.get("n_outputs") == 3)
    y = (x - mean) / np.sqrt(variance + eps) * (1 if gamma is None else gamma)
    return y + (0 if beta is None else beta)


def tensor(x, beta=None, gamma=None, axes=(1,), **how):
    return normalize(x, others(x, axes), beta, gamma, **how)


def layer(x, beta=None, gamma=None, batch_axis=0, **how):
    return normalize(x, others(x, batch_axis), beta, gamma, **how)


def instance(x, beta=None, gamma=None, channel_axis=1, batch_axis=0, **how):
    return normalize(x, others(x, (*np.atleast_1d(batch_axis), channel_axis)), beta, gamma, **how)


def group(x, beta=None, gamma=None, num_groups=1, channel_axis=1, batch_axis=0, eps=1e-5, output_stat=False):
    c = channel_axis % x.ndim
    samples = {a % x.ndim for a in np.atleast_1d(batch_axis)}
    split = x.reshape(*x.shape[:c], num_groups, x.shape[c] // num_groups, *x.shape[c + 1 :])
    over = tuple(a if a < c else a + 1 for a in range(x.ndim) if a not in samples)
    y, *statistics = normalize(split, over, None, None, eps, output_stat=True)
    y = y.reshape(x.shape) * (1 if gamma is None else gamma) + (0 if beta is None else beta)
    return (y, *statistics) if output_stat else y


def standardize(w, channel_axis=0, eps=1e-5, output_stat=False):
    return normalize(w, others(w, channel_axis), None, None, eps, output_stat)


def weight_normalization(w, g, dim=0, eps=1e-12):
    shape = [1] * w.ndim
    shape[dim] = -1
    return g.reshape(shape) * w / np.sqrt((w * w).sum(others(w, dim), keepdims=True) + eps)


def beta_gamma(*shape):
    return sample(*shape, seed=1), sample(*shape, seed=2, low=0.5, high=2.0)


def statistics(*shape):
    return sample(*shape, seed=3), sample(*shape, seed=4, low=0.5, high=2.0)


BATCH = {"tolerance": 2e-5, "writes": (3, 4)}

ROWS: list[Row] = [
    Row(
        "batch_normalization",
        (sample(4, 3, 5), *beta_gamma(1, 3, 1), *statistics(1, 3, 1)),
        batch,
        by=(0, 1, 2),
        **BATCH,
    ),
    Row(
        "batch_normalization",
        (sample(4, 3), *beta_gamma(1, 3), *statistics(1, 3)),
        batch,
        {"output_stat": True},
        by=(0, 1, 2),
        **BATCH,
    ),
    Row(
        "batch_normalization",
        (sample(4, 3), *beta_gamma(1, 3), *statistics(1, 3)),
        batch,
        {"n_outputs": 3, "eps": 0.01, "decay_rate": 0.5},
        by=(0, 1, 2),
        **BATCH,
    ),
    Row(
        "batch_normalization",
        (sample(4, 2, 3), *beta_gamma(1, 1, 3)),
        batch,
        {"axes": (2,), "eps": 0.1},
        tolerance=2e-5,
    ),
    Row(
        "batch_normalization",
        (sample(4, 2, 3), *beta_gamma(1, 2, 3), *statistics(1, 2, 3)),
        batch,
        {"axes": (1, 2)},
        by=(0, 1, 2),
        **BATCH,
    ),
    Row("batch_normalization", (sample(4, 3),), batch, tolerance=2e-5),
    Row(
        "batch_normalization",
        (sample(4, 3, 2), *beta_gamma(1, 3, 1), *statistics(1, 3, 1)),
        batch,
        {"batch_stat": False},
        by=(0, 1, 2),
        tolerance=2e-5,
    ),
    Row(
        "batch_normalization",
        (sample(4, 3), None, None, *statistics(1, 3)),
        batch,
        {"batch_stat": False},
        by=(0,),
        tolerance=2e-5,
    ),
    *(
        Row("tensor_normalization", (sample(4, 3, 5), *beta_gamma(1, 3, 1)), tensor, args, tolerance=2e-5)
        for args in ({}, {"eps": 0.1}, {"output_stat": True})
    ),
    Row("tensor_normalization", (sample(4, 3, 2), *beta_gamma(1, 3, 2)), tensor, {"axes": (1, 2)}, tolerance=2e-5),
    Row("tensor_normalization", (sample(4, 3),), tensor, tolerance=2e-5),
    *(
        Row("layer_normalization", (sample(2, 3, 5), *beta_gamma(1, 3, 5)), layer, args, tolerance=2e-5)
        for args in ({}, {"eps": 0.1}, {"output_stat": True})
    ),
    Row("layer_normalization", (sample(2, 3, 5), *beta_gamma(1, 3, 5)), layer, tolerance=2e-5),
    Row("layer_normalization", (sample(2, 3, 5),), layer, {"batch_axis": (0, 1)}, tolerance=2e-5),
    Row("layer_normalization", (sample(0, 3),), layer, tolerance=2e-5),
    *(
        Row("instance_normalization", (sample(2, 3, 5), *beta_gamma(1, 3, 1)), instance, args, tolerance=2e-5)
        for args in ({}, {"eps": 0.1}, {"output_stat": True})
    ),
    Row(
        "instance_normalization", (sample(2, 5, 3), *beta_gamma(2, 1, 3)), instance, {"channel_axis": 2}, tolerance=2e-5
    ),
    Row("instance_normalization", (sample(2, 3, 5),), instance, {"batch_axis": (0,)}, tolerance=2e-5),
    *(
        Row("group_normalization", (sample(2, 4, 5), *beta_gamma(1, 4, 1)), group, args, tolerance=2e-5)
        for args in ({}, {"num_groups": 2}, {"num_groups": 4, "eps": 0.1}, {"num_groups": 2, "output_stat": True})
    ),
    Row(
        "group_normalization",
        (sample(2, 3, 4), None, None),
        group,
        {"num_groups": 2, "channel_axis": 2, "output_stat": True},
        tolerance=2e-5,
    ),
    Row(
        "group_normalization",
        (sample(2, 3, 4, 2),),
        group,
        {"num_groups": 2, "channel_axis": -2, "batch_axis": (0, 1)},
        tolerance=2e-5,
    ),
    *(
        Row("weight_standardization", (sample(3, 4, 2),), standardize, args, tolerance=2e-5)
        for args in ({}, {"channel_axis": 1}, {"channel_axis": -1, "eps": 0.1}, {"output_stat": True})
    ),
    *(
        Row(
            "weight_normalization",
            (sample(*w), sample(w[args.get("dim", 0)], seed=1)),
            weight_normalization,
            args,
            tolerance=5e-6,
        )
        for w, args in (
            ((3, 4), {}),
            ((3, 4), {"dim": 1}),
            ((3, 2, 4), {"dim": -2, "eps": 0.1}),
            ((1, 1), {}),
            ((3, 1, 2, 2), {}),
        )
    ),
]
