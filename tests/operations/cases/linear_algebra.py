"""Rows of matrix decompositions, and of normalizations that treat an array as a matrix or as samples."""

from __future__ import annotations

import numpy as np

from . import Row, sample


def well(*shape):
    """Returns well-conditioned random matrices."""
    return sample(*shape) + 3 * np.eye(shape[-1]) * np.where(np.arange(shape[-1]) % 2, 1, -1)


def positive(*shape):
    """Returns symmetric positive definite matrices."""
    x = sample(*shape)
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1])


def lower_half(x):
    """Returns the symmetric matrix with the lower triangle of `x`."""
    low = np.tril(x)
    return low + np.tril(low, -1).swapaxes(-1, -2)


def cholesky(x, upper=False):
    """NumPy reference of `cholesky`, which reads the lower triangle."""
    y = np.linalg.cholesky(lower_half(x)) if x.size else x
    return y.swapaxes(-1, -2) if upper else y


def cholesky_gradient(upper=False):
    """Returns the symmetric gradient of `cholesky` (Murray, 2016): each of two mirrored elements has half of it."""

    def gradient(gy, x):
        """Returns the gradient of the matrix."""
        if not x.size:
            return (x,)
        y, g = cholesky(x), np.tril(gy.swapaxes(-1, -2) if upper else gy)
        inner = np.tril(y.swapaxes(-1, -2) @ g)
        inner = inner - 0.5 * inner * np.eye(x.shape[-1])
        back = np.linalg.inv(y)
        whole = back.swapaxes(-1, -2) @ inner @ back
        return ((whole + whole.swapaxes(-1, -2)) / 2,)

    return gradient


def iterate(w, u, dim=0, itr=1, eps=1e-12):
    """Returns the matrix of a weight and its singular vectors after `itr` power iterations."""
    m = np.moveaxis(w, dim, 0).reshape(w.shape[dim], -1)
    for _ in range(itr):
        v = m.T @ u
        v = v / np.sqrt((v * v).sum() + eps)
        u = m @ v
        u = u / np.sqrt((u * u).sum() + eps)
    return m, u, v


def spectral_norm(w, u, dim=0, itr=1, eps=1e-12, test=False, output_u=False):
    """NumPy reference of `spectral_norm`."""
    m, left, right = iterate(w, u, dim, itr, eps)
    y = w / (left @ m @ right)
    return (y, u) if output_u else y


def spectral_gradient(**how):
    """Returns the gradient of `spectral_norm`, which treats the singular vectors as constants."""
    how = {k: v for k, v in how.items() if k in ("dim", "itr", "eps")}

    def gradient(gy, *rest):
        """Returns the gradient of the weight."""
        w, u = rest[-2:]
        m, left, right = iterate(w, u, **how)
        sigma, dim = left @ m @ right, how.get("dim", 0)
        direction = np.outer(left, right).reshape(np.moveaxis(w, dim, 0).shape)
        direction = np.moveaxis(direction, 0, dim)
        return ((gy - (gy * w).sum() / sigma * direction) / sigma,)

    return gradient


def mean_subtraction(x, mean, t, base_axis=1, update_running_mean=True):
    """NumPy reference of `mean_subtraction`."""
    base_axis %= x.ndim
    if not update_running_mean:
        return x - mean
    t = t.reshape(()) + 1
    return x - (mean + (x.mean(tuple(range(base_axis))) - mean) / t)


ROWS: list[Row] = [
    *(
        Row("batch_det", (well(*s),), lambda x: np.linalg.det(x), tolerance=2e-5)
        for s in ((3, 3, 3), (2, 2, 4, 4), (1, 1, 1))
    ),
    Row("batch_det", (well(0, 2, 2),), lambda x: np.linalg.det(x)),
    *(
        Row("batch_logdet", (well(*s),), lambda x: np.linalg.slogdet(x)[1], tolerance=5e-6)
        for s in ((3, 3, 3), (2, 2, 4, 4), (2, 2), (1, 1, 1), (0, 2, 2))
    ),
    *(
        Row("batch_inv", (well(*s),), lambda x: np.linalg.inv(x), tolerance=5e-6)
        for s in ((3, 3, 3), (2, 1, 4, 4), (2, 2), (1, 1, 1), (0, 2, 2), (2, 0, 0))
    ),
    *(
        Row("batch_cholesky", (positive(*s),), cholesky, args, gradient=cholesky_gradient(**args), tolerance=2e-5)
        for s, args in (((3, 3, 3), {}), ((2, 3, 3), {"upper": True}), ((2, 2), {}), ((1, 1, 1), {}), ((0, 2, 2), {}))
    ),
    *(
        Row(
            "spectral_norm",
            (sample(*w), sample(w[args.get("dim", 0)], seed=1)),
            spectral_norm,
            args,
            by=(0,),
            gradient=spectral_gradient(**args),
            tolerance=5e-6,
            writes=() if args.get("test") else (1,),
        )
        for w, args in (
            ((3, 4), {}),
            ((3, 4), {"dim": 1, "itr": 3}),
            ((2, 3, 2, 2), {"dim": 1, "test": True, "itr": 2}),
            ((3, 4), {"eps": 0.1, "output_u": True, "test": True}),
            ((2,), {}),
        )
    ),
    *(
        Row(
            "mean_subtraction", (sample(*x), sample(*mean, seed=1), np.array(t)), mean_subtraction, args, by=(0,), **how
        )
        for x, mean, t, args, how in (
            ((4, 3), (3,), [0.0], {}, {"writes": (1, 2)}),
            ((2, 4, 3), (3,), [3.0], {"base_axis": 2}, {"writes": (1, 2)}),
            ((2, 4, 3), (4, 3), 1.0, {"base_axis": -2}, {"writes": (1, 2)}),
            ((4, 3), (3,), [2.0], {"update_running_mean": False}, {}),
            ((1, 1), (1,), [0.0], {}, {"writes": (1, 2)}),
        )
    ),
]
