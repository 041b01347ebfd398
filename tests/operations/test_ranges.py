"""Norms, normalizations, clipping and means at every magnitude of their type neither overflow nor vanish on the way.

All of these functions are homogeneous: `f(u * s) == s ** degree * f(u)`. The reference is computed in float64 from
numbers near one.
"""

import re

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

U = np.array([[0.7, -1.3, 0.2, 2.1, -0.4], [-1.1, 0.6, 1.7, -0.3, 0.9]])
"""Inputs of ordinary size. Tests multiply them by each magnitude."""
W = np.array([[0.3, -0.8, 0.5, 0.1, -0.6], [0.9, 0.4, -0.2, -0.7, 0.2]])
"""Weights of the shape of `U`."""

MAGNITUDES = {
    "float": [1e-40, 1e-37, 1e-30, 1e-22, 1e-12, 1.0, 1e10, 1e19, 1e25, 1e38, 1.6e38],
    "double": [1e-310, 1e-305, 1e-250, 1e-170, 1.0, 1e153, 1e170, 1e300, 8e307],
    "half": [3e-5, 1e-3, 1.0, 300.0, 3e3, 2.5e4],
    "bfloat16": [1e-37, 1e-25, 1.0, 1e19, 1e30, 1e38],
}
"""Factors of the inputs for each element type, from tiny to huge."""
DIGITS = {"float": 3e-6, "double": 1e-7, "half": 4e-3, "bfloat16": 3e-2}
"""Tolerance for each element type."""
MOST = {"float": 3.4e38, "double": 1.79e308, "half": 65504.0, "bfloat16": 3.38e38}
"""The largest number of each element type."""
LEAST = {"float": 1e-45, "double": 5e-324, "half": 6e-8, "bfloat16": 1e-40}
"""About the least positive number of each element type."""


def constant(values):
    """Returns a float64 variable without gradient."""
    return nn.Variable.from_numpy_array(np.array(values, np.float64))


def p_norm(u, p):
    """Returns the p-norm of each row."""
    return (np.abs(u) ** p).sum(1) ** (1 / p)


def unit(u, axis=1):
    """Returns the values shifted and scaled to mean 0 and variance 1."""
    d = u - u.mean(axis, keepdims=True)
    return d / np.sqrt((d * d).mean(axis, keepdims=True))


def per_row(function, **kw):
    """Returns a function of two rows that normalizes each, as two channels or groups of one sample."""
    return lambda x, s: F.reshape(function(F.reshape(x, (1, 2, 5)), None, None, eps=0.0, **kw), (2, 5))


def batch(x, beta=None, gamma=None, function=F.batch_normalization):
    """A batch normalization with batch statistics and `eps=0`."""
    return function(x, beta, gamma, None, None, axes=[1], eps=0.0)


BETA_GAMMA = constant(np.zeros((1, 2, 1))), constant(np.ones((1, 2, 1)))
"""A shift of zero and a scale of one."""


def clipped(u, limit):
    """Returns the rows scaled down to a norm of at most `limit`."""
    return u * np.minimum(1, limit / p_norm(u, 2)[:, None])


# The function of `x` with magnitude `s`, its float64 reference of `u`, and the degree.
FUNCTIONS = {
    **{
        f"norm {p}": (lambda x, s, p=p: F.norm(x, p, axis=1), lambda u, p=p: p_norm(u, p), 1)
        for p in (1, 2, 2.5, 3, 40)
    },
    "norm of columns": (lambda x, s: F.norm(F.transpose(x, (1, 0)), axis=0), lambda u: p_norm(u, 2), 1),
    "norm of all": (lambda x, s: F.norm(x), lambda u: np.sqrt((u * u).sum()), 1),
    **{
        f"norm_normalization {p}": (
            lambda x, s, p=p: F.norm_normalization(x, p, axes=1, eps=0.0),
            lambda u, p=p: u / p_norm(u, p)[:, None],
            0,
        )
        for p in (1, 2, 3)
    },
    "weight_normalization": (
        lambda x, s: F.weight_normalization(x, constant([2.0, 3.0]), eps=0.0),
        lambda u: u / p_norm(u, 2)[:, None] * np.array([[2.0], [3.0]]),
        0,
    ),
    "layer_normalization": (lambda x, s: F.layer_normalization(x, None, None, batch_axis=0, eps=0.0), unit, 0),
    "layer_normalization with scale": (
        lambda x, s: F.layer_normalization(x, constant(W[:1]), constant(W[1:]), batch_axis=0, eps=0.0),
        lambda u: unit(u) * W[1:] + W[:1],
        0,
    ),
    "instance_normalization": (per_row(F.instance_normalization), unit, 0),
    "group_normalization": (per_row(F.group_normalization, num_groups=2), unit, 0),
    "batch_normalization": (lambda x, s: F.reshape(batch(F.reshape(x, (1, 2, 5))), (2, 5)), unit, 0),
    "batch_normalization of columns": (
        lambda x, s: F.transpose(batch(F.transpose(x, (1, 0))), (1, 0)),
        unit,
        0,
    ),
    "fused_batch_normalization": (
        lambda x, s: batch(F.reshape(x, (1, 2, 5)), *BETA_GAMMA, function=F.fused_batch_normalization),
        lambda u: np.maximum(unit(u), 0)[None],
        0,
    ),
    "tensor_normalization": (lambda x, s: F.tensor_normalization(x, axes=[0], eps=0.0), unit, 0),
    "weight_standardization": (lambda x, s: F.weight_standardization(x, eps=0.0), unit, 0),
    "clip_by_norm": (lambda x, s: F.clip_by_norm(x, 1.9 * s, axis=1), lambda u: clipped(u, 1.9), 1),
    "clip_by_norm with an array": (
        lambda x, s: F.clip_by_norm(x, nn.Variable.from_numpy_array(np.full((2, 1), 1.9 * s)), axis=1),
        lambda u: clipped(u, 1.9),
        1,
    ),
    "mean": (lambda x, s: F.mean(x), np.mean, 1),
    "mean of rows": (lambda x, s: F.mean(x, axis=1), lambda u: u.mean(1), 1),
    "mean of columns": (lambda x, s: F.mean(F.transpose(x, (1, 0)), axis=0), lambda u: u.mean(1), 1),
    "reduce_mean": (lambda x, s: F.reduce_mean(x), np.mean, 1),
    "global_average_pooling": (
        lambda x, s: F.global_average_pooling(F.reshape(x, (1, 2, 1, 5))),
        lambda u: u.mean(1).reshape(1, 2, 1, 1),
        1,
    ),
    "average_pooling": (
        lambda x, s: F.average_pooling(F.reshape(x, (1, 2, 1, 5)), (1, 5)),
        lambda u: u.mean(1).reshape(1, 2, 1, 1),
        1,
    ),
    "average_pooling, channels last": (
        lambda x, s: F.average_pooling(F.reshape(F.transpose(x, (1, 0)), (1, 1, 5, 2)), (1, 5), channel_last=True),
        lambda u: u.mean(1).reshape(1, 1, 1, 2),
        1,
    ),
    "a sum that overflows on the way": (lambda x, s: F.sum(F.concatenate(x, x, -x, -x, x)), np.sum, 1),
}


def run(function, x, gy, mode):
    """Returns value and gradient of `function` at `x`, by kernels, or by graph rules if `mode` is "rule"."""
    x = nn.Variable.from_numpy_array(x, need_grad=True)
    with nn.auto_forward(mode == "eager"):
        y = function(x)
        gy = gy.reshape(y.shape)
        if mode == "rule":
            (g,) = nn.grad([y], [x], grad_outputs=[nn.Variable.from_numpy_array(gy)])
            nn.forward_all([y, g])
            return np.array(y.d, np.float64), np.array(g.d, np.float64)
        y.forward()
        x.grad.zero()
        y.backward(gy)
        return np.array(y.d, np.float64), np.array(x.g, np.float64)


def derivative(reference, u, w):
    """Returns the gradient of `sum(reference(u) * w)`, by central differences."""
    g, h = np.zeros_like(u), 1e-6
    for i in np.ndindex(u.shape):
        d = np.zeros_like(u)
        d[i] = h
        g[i] = ((reference(u + d) - reference(u - d)) * w).sum() / (2 * h)
    return g


def stored(x, kind):
    """Returns the numbers rounded to the element type of a context."""
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):
        y = F.identity(nn.Variable.from_numpy_array(x))
        y.forward()
        return np.array(y.d, np.float64)


@pytest.mark.parametrize("kind", MAGNITUDES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_magnitude_is_as_exact(name, kind):
    """Norms and normalizations are as exact for huge and tiny inputs as for ordinary ones."""
    function, reference, degree = FUNCTIONS[name]
    for s in MAGNITUDES[kind]:
        u = (stored(U * s, kind) / s).reshape(U.shape)
        if not np.isfinite(u).all() or (name.startswith("clip") and s > MOST[kind] / 2.4):
            continue  # or a bound that the type does not hold
        want = np.asarray(reference(u))
        # The gradient of a function of degree 0 is inversely proportional to the magnitude.
        seed = s if degree == 0 and s < 1 else 1.0
        w = stored(np.resize(W, want.shape) * seed, kind).reshape(want.shape) / seed
        slope = derivative(reference, u, w)
        for mode in ("static", "eager", "rule"):
            with nn.context_scope(nn.Context([f"cpu:{kind}"])):
                y, g = run(lambda x, s=s: function(x, s), u * s, w * seed, mode)
            what = f"{name} {kind} {s} {mode}"
            digits, factor = DIGITS[kind], s if degree else 1.0
            bound = digits + 4 * LEAST[kind] / factor
            if np.abs(want).max() < MOST[kind] / factor:
                np.testing.assert_allclose(y / factor, want, rtol=bound, atol=bound, err_msg=what)
            if (degree == 0 and s < 1e-37 and kind == "float") or s < 1e-305:
                continue  # one over the norm is beyond the range
            factor = seed / s if degree == 0 else 1.0
            bound = 8 * (digits + 4 * LEAST[kind] / factor)
            np.testing.assert_allclose(g / factor, slope, rtol=bound, atol=bound, err_msg=f"gradient of {what}")


@pytest.mark.parametrize("kind", MAGNITUDES)
@pytest.mark.parametrize("axis", [None, 1])
def test_gradients_of_every_magnitude_are_clipped(kind, axis):
    """`clip_grad_by_norm` is exact for huge and tiny gradients."""
    for s in MAGNITUDES[kind]:
        gy = stored(U * s, kind).reshape(U.shape)
        u = gy / s
        if not np.isfinite(u).all():
            continue
        want = u / np.sqrt((u * u).sum(axis, keepdims=True))
        for mode in ("static", "eager", "rule"):
            with nn.context_scope(nn.Context([f"cpu:{kind}"])):
                _, g = run(lambda x: F.clip_grad_by_norm(x, 1.0, axes=axis), np.zeros_like(U), gy, mode)
            np.testing.assert_allclose(g, want, rtol=DIGITS[kind], atol=DIGITS[kind], err_msg=f"{kind} {s} {mode}")


def parameter(values, grad, dtype):
    """Returns a parameter with these values and this gradient."""
    p = nn.Variable.from_numpy_array(values.astype(dtype), need_grad=True)
    p.grad.cast(dtype)[...] = grad
    return p


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solvers_clip_gradients_of_every_magnitude(dtype):
    """Clipping by a solver is exact for huge and tiny gradients."""
    u = U / np.sqrt((U * U).sum())
    for s in MAGNITUDES["float" if dtype == np.float32 else "double"]:
        for limit in (1.0, 0.25 * s):
            want = u * min(1.0, limit / s)
            for method in ("clip_grad_by_norm", "clip_grad_by_global_norm"):
                solver = S.Sgd(lr=1.0)
                rows = [u] if method == "clip_grad_by_norm" else [*u]
                ps = [parameter(row, row * s, dtype) for row in rows]
                solver.set_parameters({str(i): p for i, p in enumerate(ps)})
                norm = getattr(solver, method)(limit)
                what = f"{method} {s} {limit}"
                found = np.concatenate([p.g.astype(np.float64).ravel() for p in ps]) / s
                np.testing.assert_allclose(found, want.ravel(), rtol=3e-6, atol=2e-45 / s, err_msg=what)
                if norm is not None:
                    np.testing.assert_allclose(norm / s, 1.0, rtol=3e-6, atol=4e-45 / s, err_msg=what)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_in_proportion_to_norms_of_every_magnitude(dtype):
    """`Lars` and `Lamb` take right steps at every magnitude of weights and gradients."""
    w = U / np.sqrt((U * U).sum()) / 4
    for s in MAGNITUDES["float" if dtype == np.float32 else "double"]:
        digits = {"rtol": 2e-6, "atol": 1e-6 + 1e-43 / s, "err_msg": str(s)}
        p = parameter(w * s, W * s, dtype)
        solver = S.Lars(lr=1.0, coefficient=0.25, eps=0.0)
        solver.set_parameters({"p": p})
        solver.update()
        want = w - W / np.sqrt((W * W).sum()) / 16
        np.testing.assert_allclose(p.d.astype(np.float64) / s, want, **digits)
        if s < 1e10:
            continue  # the decay has to be the larger part of the direction
        p = parameter(w * s, W, dtype)
        solver = S.Lamb(eta=0.25, gamma_u=1e308)
        solver.set_parameters({"p": p})
        solver.weight_decay(1.0)
        solver.update()
        np.testing.assert_allclose(p.d.astype(np.float64) / s, 0.75 * w, **digits)


@pytest.mark.parametrize("gradient", [1.0, 1e20, 3e37])
def test_a_huge_gradient_beside_small_values_keeps_its_direction(gradient):
    p = parameter(W, U * gradient, np.float32)
    solver = S.Lars(lr=1e-3)
    solver.set_parameters({"p": p})
    solver.update()
    want = 1e-6 * np.sqrt((W * W).sum()) * U / np.sqrt((U * U).sum())
    np.testing.assert_allclose(solver.get_states()["p"].pstate["v"].d, want, rtol=2e-6)


@pytest.mark.parametrize("mode", ["static", "eager", "rule"])
@pytest.mark.parametrize("kind", MAGNITUDES)
def test_clip_by_norm_leaves_zeros_and_their_gradient(kind, mode):
    x = np.array([[0.0, 0, 0], [0.5, 0, 0], [3, 0, 4]])
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):
        y, g = run(lambda x: F.clip_by_norm(x, 1.0, axis=1), x, np.ones((3, 3)), mode)
    np.testing.assert_allclose(y, [[0, 0, 0], [0.5, 0, 0], [0.6, 0, 0.8]], atol=4e-3)
    want = [[1, 1, 1], [1, 1, 1], [(1 - 0.6 * 1.4) / 5, 0.2, (1 - 0.8 * 1.4) / 5]]
    np.testing.assert_allclose(g, want, atol=4e-3)
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):
        _, g = run(lambda x: F.norm_normalization(x, axes=1, eps=0.0), x, np.ones((3, 3)), mode)
    np.testing.assert_array_equal(g[0], 0)


def test_a_long_half_vector_is_clipped_though_half_cannot_hold_its_norm():
    x = np.full(1000, 3e3)
    with nn.context_scope(nn.Context(["cpu:half"])):
        y, g = run(lambda x: F.clip_by_norm(x, 1.0), x, np.ones(1000), "static")
        _, norm = run(F.norm, x, np.ones(()), "static")
    np.testing.assert_allclose(y, 1000**-0.5, rtol=2e-3)
    np.testing.assert_allclose(norm, 1000**-0.5, rtol=2e-3)
    assert np.isfinite(g).all()


NORMALIZATIONS = [name for name in FUNCTIONS if re.search(r"(layer|instance|group|batch|tensor)_norm|standard", name)]
"""Names of the normalizations in `FUNCTIONS`."""


@pytest.mark.parametrize("mode", ["static", "eager", "rule"])
@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_what_is_infinite_is_no_number_after_a_normalization(name, mode):
    """A row with an infinity or NaN becomes NaN, and no other row does."""
    function = FUNCTIONS[name][0]
    for bad in (np.inf, -np.inf, np.nan):
        x = U.copy()
        x[0, 2] = bad
        y, g = run(lambda x: function(x, 1.0), x, np.ones((2, 5)), mode)
        y, g = y.reshape(2, 5), g.reshape(2, 5)
        assert np.isnan(y[0]).all() and np.isnan(g[0]).all(), (bad, y, g)
        assert np.isfinite(y[1]).all() and np.isfinite(g[1]).all(), (bad, y, g)


@pytest.mark.parametrize("mode", ["static", "eager", "rule"])
def test_a_running_variance_that_is_infinite_is_no_number(mode):
    stats = [constant([[0.0], [0.0]]), constant([[np.inf], [1.0]])]
    y, g = run(
        lambda x: F.batch_normalization(
            x, None, None, *(F.reshape(v, (2, 1)) for v in stats), axes=[0], batch_stat=False
        ),
        U,
        W,
        mode,
    )
    assert np.isnan(y[0]).all() and np.isnan(g[0]).all() and np.isfinite(y[1]).all() and np.isfinite(g[1]).all()


def test_running_statistics_and_outputs_of_large_numbers():
    x = nn.Variable.from_numpy_array((U * 1.5e38).astype("f4").reshape(1, 2, 5))
    mean, variance = nn.Variable((1, 2, 1)), nn.Variable((1, 2, 1))
    mean.d, variance.d = 0, 1
    y, m, v = F.batch_normalization(x, None, None, mean, variance, decay_rate=0.0, output_stat=True)
    nn.forward_all([y, m, v])
    np.testing.assert_allclose(mean.d.ravel(), (U * 1.5e38).mean(1), rtol=1e-6)
    np.testing.assert_allclose(m.d.ravel(), (U * 1.5e38).mean(1), rtol=1e-6)
    assert np.isinf(v.d).all() and np.isinf(variance.d).all()


N = 3 << 12
"""Number of uses of one element."""


def repeated(function, shape, kind):
    """Returns the gradient of an array of zeros whose elements `function` reads many times."""
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):
        x = nn.Variable.from_numpy_array(np.zeros(shape), need_grad=True)
        x.grad.zero()
        y = F.sum(function(x) * 0.1)
        y.forward()
        y.backward()
        return np.array(x.g, np.float64)


INDEX = nn.Variable.from_numpy_array(np.zeros(N, np.int64))
"""Indices that all read element 0."""
USES = {
    "embed": (lambda x: F.embed(INDEX, x), (3, 2)),
    "gather": (lambda x: F.gather(x, INDEX), (3, 2)),
    "gather along the last axis": (lambda x: F.gather(x, INDEX, axis=1), (2, 3)),
    "gather_nd": (lambda x: F.gather_nd(x, F.reshape(INDEX, (1, N))), (3, 2)),
    "an array as index": (lambda x: x[np.zeros(N, np.int64)], (3, 2)),
    "broadcast": (lambda x: F.broadcast(x, (N, 2)), (1, 2)),
    "tile": (lambda x: F.tile(x, (N, 1)), (1, 2)),
}
"""By name: a function that reads one row or column of its input `N` times, and the shape of the input."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", USES)
def test_gradients_of_many_uses_are_added_up_exactly(name, threads):
    function, shape = USES[name]
    before = nn.get_num_threads()
    nn.set_num_threads(threads)
    try:
        g = repeated(function, shape, "float")
    finally:
        nn.set_num_threads(before)
    exact = np.float64(np.float32(0.1)) * N
    axis = 1 if shape == (2, 3) else 0
    np.testing.assert_allclose(np.take(g, 0, axis), exact, rtol=1e-7)
    if shape[axis] > 1:
        np.testing.assert_array_equal(np.take(g, [1, 2], axis), 0)


@pytest.mark.parametrize("rule", ["scatter_add", "scatter_nd", "embed", "gather"])
def test_additions_to_one_place_are_exact(rule):
    """Many additions to one element lose no digits, by kernels and graph rules."""
    exact = np.float64(np.float32(0.1)) * N
    tenths = nn.Variable.from_numpy_array(np.full((N, 2), 0.1, "f4"))
    if rule == "scatter_add":
        to = nn.Variable.from_numpy_array(np.zeros((2, 2), "f4"))
        y = F.scatter_add(to, nn.Variable.from_numpy_array(np.zeros((N, 2), np.int64)), tenths, 0)
    elif rule == "scatter_nd":
        y = F.scatter_nd(tenths, np.zeros((1, N), np.int64), shape=(2, 2), add=True)
    else:
        w = nn.Variable.from_numpy_array(np.zeros((2, 2), "f4"), need_grad=True)
        y = F.embed(INDEX, w) if rule == "embed" else F.gather(w, INDEX)
        (y,) = nn.grad([y], [w], grad_outputs=[tenths])
    y.forward()
    np.testing.assert_allclose(y.d[0], exact, rtol=1e-7)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("options", [{}, {"exclusive": True}, {"reverse": True}])
def test_running_sums_are_added_up_in_more_digits(axis, options):
    x = np.full((N, 3) if axis == 0 else (3, N), 0.1, "f4")
    v = nn.Variable.from_numpy_array(x, need_grad=True)
    y = F.cumsum(v, axis=axis, **options)
    y.forward()
    v.grad.zero()
    y.backward(x)
    exact = np.arange(1, N + 1) * np.float64(np.float32(0.1))
    if options.get("exclusive"):
        exact -= np.float64(np.float32(0.1))
    want, slope = (exact[::-1], exact) if options.get("reverse") else (exact, exact[::-1])
    for got, expected in ((y.d, want), (v.g, slope)):
        np.testing.assert_allclose(np.take(got, 1, 1 - axis), expected, rtol=1e-7)


def test_a_running_sum_keeps_the_sign_of_zero():
    """`cumsum` of negative zeros gives negative zeros."""
    x = nn.Variable.from_numpy_array(np.array([-0.0, -0.0, 1.0], "f4"))
    y = F.cumsum(x)
    y.forward()
    assert np.signbit(y.d).tolist() == [True, True, False]
