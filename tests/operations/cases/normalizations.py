"""Rows of normalizations."""

from __future__ import annotations

import numpy as np

from . import Row, sample
from .layers import convolution


def normalize(x, over, beta, gamma, eps=1e-5, output_stat=False):
    """Normalizes `x` over the axes `over`, then scales and shifts. Returns the statistics too if requested."""
    mean, variance = x.mean(over, keepdims=True), x.var(over, keepdims=True)
    y = (x - mean) / np.sqrt(variance + eps) * (1 if gamma is None else gamma) + (0 if beta is None else beta)
    return (y, mean, variance) if output_stat else y


def others(x, axes):
    """Returns all axes of `x` except `axes`."""
    axes = {a % x.ndim for a in np.atleast_1d(axes)}
    return tuple(a for a in range(x.ndim) if a not in axes)


def batch(
    x, beta=None, gamma=None, mean=None, variance=None, axes=(1,), decay_rate=0.9, batch_stat=True, eps=1e-5, **how
):
    """NumPy reference of `batch_normalization`."""
    if batch_stat:
        return normalize(x, others(x, axes), beta, gamma, eps, how.get("output_stat") or how.get("n_outputs") == 3)
    y = (x - mean) / np.sqrt(variance + eps) * (1 if gamma is None else gamma)
    return y + (0 if beta is None else beta)


def tensor(x, beta=None, gamma=None, axes=(1,), **how):
    """NumPy reference of `tensor_normalization`."""
    return normalize(x, others(x, axes), beta, gamma, **how)


def layer(x, beta=None, gamma=None, batch_axis=0, **how):
    """NumPy reference of `layer_normalization`."""
    return normalize(x, others(x, batch_axis), beta, gamma, **how)


def instance(x, beta=None, gamma=None, channel_axis=1, batch_axis=0, **how):
    """NumPy reference of `instance_normalization`."""
    return normalize(x, others(x, (*np.atleast_1d(batch_axis), channel_axis)), beta, gamma, **how)


def group(x, beta=None, gamma=None, num_groups=1, channel_axis=1, batch_axis=0, eps=1e-5, output_stat=False):
    """NumPy reference of `group_normalization`."""
    c = channel_axis % x.ndim
    samples = {a % x.ndim for a in np.atleast_1d(batch_axis)}
    split = x.reshape(*x.shape[:c], num_groups, x.shape[c] // num_groups, *x.shape[c + 1 :])
    over = tuple(a if a < c else a + 1 for a in range(x.ndim) if a not in samples)
    y, *statistics = normalize(split, over, None, None, eps, output_stat=True)
    y = y.reshape(x.shape) * (1 if gamma is None else gamma) + (0 if beta is None else beta)
    return (y, *statistics) if output_stat else y


def standardize(w, channel_axis=0, eps=1e-5, output_stat=False):
    """NumPy reference of `weight_standardization`."""
    return normalize(w, others(w, channel_axis), None, None, eps, output_stat)


def weight_normalization(w, g, dim=0, eps=1e-12):
    """NumPy reference of `weight_normalization`."""
    shape = [1] * w.ndim
    shape[dim] = -1
    return g.reshape(shape) * w / np.sqrt((w * w).sum(others(w, dim), keepdims=True) + eps)


def clipped_norm(clip_norm=1.0, axes=None):
    """Returns the declared gradient of `clip_grad_by_norm`, as a function."""

    def gradient(gy, x):
        """Returns `gy` with its norm set to `clip_norm`."""
        norm = np.sqrt((gy * gy).sum(axes, keepdims=True))
        return (clip_norm * gy / np.where(norm == 0, 1, norm),)

    return gradient


def fused(x, beta=None, gamma=None, mean=None, variance=None, z=None, nonlinearity="relu", **how):
    """NumPy reference of `fused_batch_normalization`."""
    y, *found = as_list(batch(x, beta, gamma, mean, variance, **how))
    y = np.maximum(y if z is None else y + z, 0)
    return (y, *found) if found else y


def fused_convolution(x, w, b=None, beta=None, gamma=None, mean=None, variance=None, z=None, **how):
    """NumPy reference of `fused_convolution`."""
    of_batch = {k: how.pop(k) for k in ("decay_rate", "eps", "batch_stat") if k in how}
    nonlinearity, args = how.pop("nonlinearity", "relu"), how.pop("nonlinearity_args", ())
    mode, value = how.pop("pad_mode", "constant"), how.pop("constant_value", 0.0)
    if "pad" in how:
        last = [(0, 0)] if how.get("channel_last") else []
        width = [(0, 0)] * (x.ndim - len(how["pad"]) - len(last)) + [(p, p) for p in how.pop("pad")] + last
        x = np.pad(x, width, mode, **({"constant_values": value} if mode == "constant" else {}))
    y = convolution(x, w, b, **how)
    if beta is not None:
        axis = y.ndim - 1 if how.get("channel_last") else how.get("base_axis", 1)
        y = batch(y, beta, gamma, mean, variance, axes=(axis,), **of_batch)
    y = y if z is None else y + z
    return {
        "identity": lambda: y,
        "relu": lambda: np.maximum(y, 0),
        "sigmoid": lambda: 1 / (1 + np.exp(-y)),
        "tanh": lambda: np.tanh(y),
        "elu": lambda: np.where(y > 0, y, args[0] * np.expm1(y)) if args else None,
        "relu6": lambda: np.clip(y, 0, 6),
        "leaky_relu": lambda: np.where(y > 0, y, args[0] * y) if args else None,
    }[nonlinearity]()


def synchronous(x, *parts, comm=None, group="world", **how):
    """NumPy reference of `sync_batch_normalization` in a single process."""
    return batch(x, *parts, **how)


def as_list(found):
    """Returns the outputs of a reference as a list."""
    return list(found) if isinstance(found, tuple) else [found]


def beta_gamma(*shape):
    """Returns a shift and a scale of this shape."""
    return sample(*shape, seed=1), sample(*shape, seed=2, low=0.5, high=2.0)


def statistics(*shape):
    """Returns a running mean and a running variance of this shape."""
    return sample(*shape, seed=3), sample(*shape, seed=4, low=0.5, high=2.0)


BATCH = {"tolerance": 2e-5, "writes": (3, 4)}
"""Fields of rows of batch normalization. It changes its running mean and variance, inputs 3 and 4."""

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
    *(
        Row(
            "clip_grad_by_value",
            (sample(*s), sample(*s, low=0.5, high=0.9, seed=1), sample(*s, low=1.0, high=1.4, seed=2)),
            lambda x, low, high: x,
            by=(0,),
            gradient=lambda gy, x, low, high: (np.clip(gy, low, high),),
        )
        for s in ((2, 3), (), (1,), (0, 3), (5, 1, 7))
    ),
    # With swapped bounds the upper one wins, unless the gradient is at or below both.
    Row(
        "clip_grad_by_value",
        (sample(4, 6), sample(4, 6, low=0.9, high=1.4, seed=1), sample(4, 6, low=-0.4, high=0.6, seed=2)),
        lambda x, low, high: x,
        by=(0,),
        gradient=lambda gy, x, low, high: (np.where(gy > high, high, np.where(gy < low, low, gy)),),
    ),
    *(
        Row("clip_grad_by_norm", (sample(*s),), lambda x, **_: x, args, gradient=clipped_norm(**args), tolerance=5e-6)
        for s, args in (
            ((2, 3), {}),
            ((4, 3, 5), {"axes": (1,), "clip_norm": 2.5}),
            ((4, 3, 5), {"axes": (0, 2)}),
            ((4, 3), {"axes": (0,)}),
            ((1,), {}),
            ((0, 3), {}),
        )
    ),
    *(
        Row(name, (sample(4, 3, 5), *beta_gamma(1, 3, 1), *statistics(1, 3, 1)), of, args, by=(0, 1, 2), **BATCH)
        for name, of in (("fused_batch_normalization", fused), ("sync_batch_normalization", synchronous))
        for args in ({}, {"output_stat": True, "eps": 0.1})
    ),
    Row(
        "fused_batch_normalization",
        (sample(4, 3), *beta_gamma(1, 3), *statistics(1, 3), sample(4, 3, seed=9)),
        fused,
        {"batch_stat": False},
        by=(0, 1, 2, 5),
        tolerance=2e-5,
    ),
    Row(
        "fused_batch_normalization",
        (sample(2, 3, 4), *beta_gamma(1, 1, 4), *statistics(1, 1, 4), sample(2, 3, 4, seed=9)),
        fused,
        {"axes": (-1,), "decay_rate": 0.5, "eps": 0.1, "nonlinearity": "relu", "n_outputs": 3},
        by=(0, 1, 2, 5),
        **BATCH,
    ),
    Row("fused_batch_normalization", (sample(4, 3),), fused, {"eps": 0.1}, tolerance=2e-5),
    Row(
        "fused_batch_normalization",
        (sample(0, 3), *beta_gamma(1, 3), *statistics(1, 3)),
        fused,
        {"batch_stat": False},
        by=(0, 1, 2),
    ),
    Row("fused_convolution", (sample(2, 2, 5), sample(3, 2, 3, seed=1)), fused_convolution, tolerance=1e-5),
    Row("fused_convolution", (sample(0, 2, 5), sample(3, 2, 3, seed=1)), fused_convolution),
    *(
        Row(
            "fused_convolution",
            (sample(2, 3, 4, 5, 2), sample(4, 2, 3, 2, seed=1), sample(4, seed=2))
            + ((*beta_gamma(*last), *statistics(*last)) if of_batch else ())
            + ((() if of_batch else (None,) * 4) + (sample(2, 3, 3, 3, 4, seed=3),) if add else ()),
            fused_convolution,
            {"base_axis": 2, "stride": (2, 2), "pad": (1, 1), "channel_last": True, "eps": 0.1, "decay_rate": 0.7}
            | {"nonlinearity": name, "nonlinearity_args": args, "batch_stat": batch_stat},
            by=(0, 1, 2) + ((3, 4) if of_batch else ()) + ((7,) if add else ()),
            tolerance=2e-5,
            writes=(5, 6) if of_batch and batch_stat else (),
        )
        for last in [(1, 1, 1, 1, 4)]
        for name, args, of_batch, batch_stat, add in (
            ("sigmoid", (), True, True, False),
            ("elu", (0.7,), True, False, True),
            ("relu6", (), False, True, True),
            ("relu", (), True, False, True),
        )
    ),
    Row(
        "fused_convolution",
        (sample(2, 2, 5), sample(3, 2, 3, seed=1), sample(3, seed=2), *[None] * 4, sample(2, 3, 5, seed=3)),
        fused_convolution,
        {"pad": (1,), "pad_mode": "reflect", "nonlinearity": "tanh"},
        tolerance=1e-5,
    ),
    Row(
        "fused_convolution",
        (sample(2, 2, 5), sample(4, 1, 3, seed=1), sample(4, seed=2)),
        fused_convolution,
        {"pad": (1,), "constant_value": 2.0, "group": 2, "nonlinearity": "leaky_relu", "nonlinearity_args": (0.3,)},
        tolerance=1e-5,
    ),
    Row(
        "fused_convolution",
        (
            sample(2, 2, 5),
            sample(3, 2, 2, seed=1),
            None,
            *beta_gamma(1, 3, 1),
            *statistics(1, 3, 1),
            sample(2, 3, 5, seed=4),
        ),
        fused_convolution,
        {"dilation": (2,), "pad": (1,), "nonlinearity": "identity", "eps": 0.1},
        by=(0, 1, 3, 4, 7),
        tolerance=2e-5,
        writes=(5, 6),
    ),
]
