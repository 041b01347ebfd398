"""Extreme numbers: quotients, angles, powers at zero, limits, distant places, excluded ends of intervals."""

import itertools
import math

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff
from kinnor.initializer import UniformInitializer
from kinnor.utils.learning_rate_scheduler import (
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    PolynomialScheduler,
    StepScheduler,
)

INF = np.inf
MODES = ("static", "cleared", "dynamic", "autodiff", "graph")
"""Ways to differentiate a function."""
WIDE = np.longdouble
"""A type with more digits and a larger range, for references."""


def context(kind):
    """Returns a context scope with this element type."""
    return nn.context_scope(nn.Context([f"cpu:{kind}"]))


def leaves(arrays):
    """Returns a leaf that needs a gradient for each array."""
    return [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]


def differentiated(function, arrays, mode, gy):
    """Returns the gradients of `function(*arrays)` for the output gradient `gy`.

    `mode` selects kernels or graph rules.
    """
    xs = leaves(arrays)
    if mode == "graph":
        y = function(*xs)
        grads = nn.grad([y], xs, grad_outputs=[nn.Variable.from_numpy_array(gy)])
        nn.forward_all(grads)
        return [np.array(g.d) for g in grads]
    for x in xs:
        x.grad.zero()
    if mode == "dynamic" or mode == "autodiff":
        with nn.auto_forward():
            y = function(*xs)
            if mode == "autodiff":
                return [np.array(g.d) for g in autodiff.grad(y, xs, [gy], materialize_grads=True)]
            y.backward(gy)
    else:
        y = function(*xs)
        y.forward(clear_no_need_grad=mode == "cleared")
        y.backward(gy, clear_buffer=mode == "cleared")
    return [np.array(x.g) for x in xs]


def by_quotient(a, b):
    """Returns the derivatives of `a / b` by `a` and by `b`."""
    return 1 / b, -a / b / b


def by_angle(y, x):
    """Returns the derivatives of `atan2(y, x)` by `y` and by `x`."""
    square = y * y + x * x
    return x / square, -y / square


def by_power(x, y):
    """Returns the derivatives of `x ** y` by `x` and by `y`."""
    return (np.where(y == 0, 0, y * x ** (y - 1)), x**y * np.log(x))


# Function, inputs, exact derivatives.
RANGES = {
    "div2": (
        F.div2,
        ([1e-30, 3e30, 1e-30, 2.0, 1e10, 1e38, -1e-38, 3.0], [1e-25, 1e25, 2e-21, 4.0, 1e-8, 1e30, 1e-30, -2e18]),
        by_quotient,
    ),
    "an operator": (lambda a, b: a / b, ([1e-30, 3e30], [1e-25, 1e25]), by_quotient),
    "r_div_scalar": (
        lambda x: F.r_div_scalar(x, val=3e-30),
        ([1e-25, 1e25, 2.0, -1e-20, 1e-18],),
        lambda x: (-WIDE(3e-30) / x / x,),
    ),
    "atan2": (
        F.atan2,
        ([1e-25, 1e25, 3e20, 1e-30, 1.0, -2e30, 3e-20, -4.0], [2e-25, 3e25, 1e-3, 1e-20, 2.0, 1e31, -4e-20, -3.0]),
        by_angle,
    ),
    "atan": (F.atan, ([1e17, -1e18, 1.0, 0.3, 1e-30],), lambda x: (1 / (1 + x * x),)),
    "asinh": (F.asinh, ([1e19, 1e20, 1e25, -1e25, 1e30, 0.5, -1.0],), lambda x: (1 / np.sqrt(1 + x * x),)),
    "acosh": (F.acosh, ([1e19, 1e25, 1e30, 1.0 + 2**-20, 3.0],), lambda x: (1 / np.sqrt((x - 1) * (x + 1)),)),
    "asin": (F.asin, ([1 - 2**-24 * k for k in (1, 17, 999, 40001)],), lambda x: (1 / np.sqrt((1 - x) * (1 + x)),)),
    "acos": (F.acos, ([1 - 2**-24 * k for k in (1, 17, 999, 40001)],), lambda x: (-1 / np.sqrt((1 - x) * (1 + x)),)),
    "atanh": (F.atanh, ([1 - 2**-24 * k for k in (1, 17, 999, 40001)],), lambda x: (1 / ((1 - x) * (1 + x)),)),
    "softsign": (F.softsign, ([1e18, -1e15, 1e-25],), lambda x: (1 / (1 + abs(x)) ** 2,)),
    "log": (F.log, ([1e-38, 1e38, 2.0],), lambda x: (1 / x,)),
    "pow2": (F.pow2, ([1e10, 1e-10, 2.0, 3.0], [2.0, 2.0, -3.0, 0.0]), by_power),
    "pow_scalar": (lambda x: F.pow_scalar(x, val=-1.5), ([1e-10, 1e10, 4.0],), lambda x: (-1.5 * x**-2.5,)),
    "erf": (F.erf, ([0.1, 2.0, 5.0, 8.0, -9.0],), lambda x: (2 / np.sqrt(WIDE(np.pi)) * np.exp(-x * x),)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RANGES)
def test_gradients_neither_overflow_nor_vanish(name, mode):
    """Gradients are right where squares or powers of the inputs overflow or underflow."""
    function, inputs, derivatives = RANGES[name]
    for kind, scale in (("float", 1.0), ("float", 1e-6), ("double", 1.0)):
        arrays = [np.array(x, np.float32 if kind == "float" else np.float64) for x in inputs]
        gy = np.full(arrays[0].shape, scale, arrays[0].dtype)
        with context(kind), np.errstate(all="ignore"):
            got = differentiated(function, arrays, mode, gy)
            exact = derivatives(*(x.astype(WIDE) for x in arrays))
        for g, e in zip(got, exact, strict=True):
            bound = 4e-6 if name == "erf" and mode == "graph" else 1e-6
            np.testing.assert_allclose(g, (e * WIDE(gy)).astype(g.dtype), rtol=bound, atol=2e-44, err_msg=kind)


@pytest.mark.parametrize("mode", MODES)
def test_a_quotient_with_a_subnormal_number_has_a_gradient(mode):
    x = np.array([5e-39], np.float32)
    (g, _) = differentiated(F.div2, [x, np.array([1e-39], np.float32)], mode, np.array([1e-10], np.float32))
    np.testing.assert_allclose(g, 1e29, rtol=1e-5)
    (g,) = differentiated(F.log, [np.array([1e-39], np.float32)], mode, np.array([1e-10], np.float32))
    np.testing.assert_allclose(g, 1e29, rtol=1e-5)


def derivatives_of(function, x, count, how, kind):
    """Returns the first `count` derivatives of `function` at `x`."""
    found = []
    with context(kind):
        (v,) = leaves([x])
        if how == "autodiff":
            with nn.auto_forward():
                y = F.sum(function(v))
                for _ in range(count):
                    (g,) = autodiff.grad(y, v, create_graph=True, materialize_grads=True)
                    found.append(np.array(g.d))
                    y = F.sum(g)
            return found
        y = F.sum(function(v))
        for _ in range(count):
            (g,) = nn.grad([y], [v])
            g.persistent = True
            found.append(g)
            y = F.sum(g)
        nn.forward_all(found)
    return [np.array(g.d) for g in found]


def raised(power):
    """Returns a function that raises its argument to a constant power."""
    return lambda x: F.pow2(x, F.constant(power, x.shape))


# Function, and its first derivatives at zero.
POWERS_AT_ZERO = {
    "pow2 to 0": (raised(0), [0, 0, 0, 0]),
    "pow2 to 1": (raised(1), [1, 0, 0, 0]),
    "pow2 to 2": (raised(2), [0, 2, 0, 0]),
    "pow2 to 3": (raised(3), [0, 0, 6, 0]),
    "pow2 to 4": (raised(4), [0, 0, 0, 24]),
    "pow_scalar to 0": (lambda x: F.pow_scalar(x, val=0.0), [0, 0, 0, 0]),
    "pow_scalar to 1": (lambda x: F.pow_scalar(x, val=1.0), [1, 0, 0, 0]),
    "pow_scalar to 2": (lambda x: F.pow_scalar(x, val=2.0), [0, 2, 0, 0]),
    "pow_scalar to 3": (lambda x: F.pow_scalar(x, val=3.0), [0, 0, 6, 0]),
    "pow_scalar to 4": (lambda x: F.pow_scalar(x, val=4.0), [0, 0, 0, 24]),
    "pow_scalar to 5": (lambda x: F.pow_scalar(x, val=5.0), [0, 0, 0, 0]),
    "pow_scalar to 2.5": (lambda x: F.pow_scalar(x, val=2.5), [0, 0, INF, -INF]),
    "pow_scalar to 3.5": (lambda x: F.pow_scalar(x, val=3.5), [0, 0, 0, INF]),
    "pow_scalar to 0.5": (lambda x: F.pow_scalar(x, val=0.5), [INF, -INF, INF, -INF]),
}


@pytest.mark.parametrize("name", POWERS_AT_ZERO)
@pytest.mark.parametrize("how", ["autodiff", "graph"])
def test_powers_at_zero_have_four_derivatives(name, how):
    """The first four derivatives of powers at zero have their limits."""
    function, expected = POWERS_AT_ZERO[name]
    for kind in ("float", "double", "half", "bfloat16"):
        for zero in (0.0, -0.0) if "0.5" in name else (0.0,):
            found = derivatives_of(function, np.array([zero], np.float32), 4, how, kind)
            assert [g.tolist() for g in found] == [[e] for e in expected], (kind, zero)


@pytest.mark.parametrize("mode", MODES)
def test_powers_of_zero_and_roots_of_minus_zero(mode):
    """Derivatives of powers at base or exponent zero are exact, by kernels and by rules."""
    x = np.array([2.0, 0.5, 1e-3], np.float32)
    (g,) = differentiated(lambda v: F.r_pow_scalar(v, val=0.0), [x], mode, np.ones(3, np.float32))
    assert g.tolist() == [0, 0, 0]
    (by_base, by_power) = differentiated(F.pow2, [x * 0, x], mode, np.ones(3, np.float32))
    assert by_power.tolist() == [0, 0, 0]
    (by_base, _) = differentiated(F.pow2, [x * 0, x * 0], mode, np.ones(3, np.float32))
    assert by_base.tolist() == [0, 0, 0]
    (by_base, _) = differentiated(F.pow2, [np.float32([1e-40]), np.float32([0])], mode, np.ones(1, np.float32))
    assert by_base.tolist() == [0]
    (g,) = differentiated(lambda v: F.pow_scalar(v, val=0.5), [np.float32([0.0, -0.0])], mode, np.ones(2, np.float32))
    assert g.tolist() == [INF, INF]


def units(got, exact):
    """Returns the error in units in the last place of float32."""
    return np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))


def sigmoid(x):
    """The logistic function in NumPy."""
    return 1 / (1 + np.exp(-x))


def mish(x):
    """Mish in NumPy."""
    return x * np.tanh(np.log1p(np.exp(x)))


# Function, exact reference, lowest input, and largest error in units in the last place.
LIMITS = {
    "sigmoid": (F.sigmoid, sigmoid, (4, 20), 0.55),
    "tanh": (F.tanh, np.tanh, (2.5, 12), 0.55),
    "erf": (F.erf, np.vectorize(math.erf), (2, 5), 0.55),
    "softplus": (F.softplus, lambda x: np.log1p(np.exp(x)), (4, 80), 0.6),
    "log_sigmoid": (F.log_sigmoid, lambda x: -np.log1p(np.exp(-x)), (-80, -4), 0.6),
    "swish": (F.swish, lambda x: x * sigmoid(x), (4, 30), 1.05),
    "mish": (F.mish, mish, (4, 30), 1.05),
}


@pytest.mark.parametrize("name", LIMITS)
def test_functions_near_their_limits(name):
    """Functions are exact to a few ulp where they approach a limit."""
    function, exact, (low, high), bound = LIMITS[name]
    x = np.linspace(low, high, 100_003).astype(np.float32)
    y = function(nn.Variable.from_numpy_array(x))
    y.forward()
    expected = exact(x.astype(np.float64))
    assert units(y.d, expected).max() <= bound


GRADIENTS_NEAR_LIMITS = {
    "swish": (F.swish, lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), (4, 25), 3),
    "mish": (F.mish, None, (4, 25), 4),
    "log_sigmoid": (F.log_sigmoid, lambda x: sigmoid(-x), (-80, 80), 4),
    "softplus": (F.softplus, sigmoid, (-80, 80), 4),
}
"""By name: function, exact derivative or None, range of inputs, largest error in units in the last place."""


@pytest.mark.parametrize("mode", ["static", "graph"])
@pytest.mark.parametrize("name", GRADIENTS_NEAR_LIMITS)
def test_gradients_near_limits(name, mode):
    """Gradients near limits of a function are exact to the given units of rounding."""
    function, exact, (low, high), bound = GRADIENTS_NEAR_LIMITS[name]
    x = np.linspace(low, high, 50_021).astype(np.float32)
    wide = x.astype(WIDE)
    if exact is None:
        t, s = np.tanh(np.log1p(np.exp(wide))), sigmoid(wide)
        expected = t + wide * s * (1 - t * t)
    else:
        expected = exact(wide)
    (g,) = differentiated(function, [x], mode, np.ones_like(x))
    assert units(g, expected.astype(np.float64)).max() <= bound


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_a_saturated_function_vanishes_where_the_nearest_number_is_one(mode):
    x = np.linspace(4, 18, 20_011).astype(np.float32)
    for function, exact in ((F.sigmoid, sigmoid), (F.tanh, np.tanh)):
        (g,) = differentiated(function, [x], mode, np.ones_like(x))
        y = function(nn.Variable.from_numpy_array(x))
        y.forward()
        nearest = exact(x.astype(WIDE)).astype(np.float32)
        near_tie = units(nearest, exact(x.astype(np.float64))) > 0.45
        assert ((g == 0) == (nearest == 1))[~near_tie].all()
        one_less = 1 - y.d.astype(np.float64)
        slope = one_less * y.d if function is F.sigmoid else one_less * (1 + y.d)
        np.testing.assert_allclose(g, slope, rtol=2e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["float", "double", "half"])
@pytest.mark.parametrize("axes", [2, 3])
def test_slopes_at_the_first_and_last_elements_are_from_inside(mode, kind, axes):
    """The gradient by a position at the border is the slope inside."""
    n = 5
    line = np.arange(n, dtype=np.float32)
    image = np.broadcast_to(line, (1, 1) + (n,) * axes).copy()
    places = np.linspace(-1, 1, n, dtype=np.float32)
    grid = np.stack(np.meshgrid(*[places] * axes, indexing="ij")[::-1], -1)[None]
    for border in ("repeat", "reflect"):
        for last in (False, True):
            x = np.moveaxis(image, 1, -1).copy() if last else image
            ones = np.ones((1,) + (n,) * axes + (1,) if last else (1, 1) + (n,) * axes, np.float32)
            with context(kind):
                _, g = differentiated(
                    lambda a, b: F.warp_by_grid(a, b, "linear", border, True, last),  # noqa: B023
                    [x, grid],
                    mode,
                    ones,
                )
            assert (g[..., 0] == 2).all(), (border, last)
            assert (g[..., 1:] == 0).all(), (border, last)


def reflected(place, n, corners):
    """Returns where a position outside of an image of `n` elements is after reflection.

    `corners`: at element centers.
    """
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    rest = np.fmod(abs(place - WIDE(low)), 2 * (high - low))
    return float(min(max(low + min(rest, 2 * (high - low) - rest), 0.0), n - 1.0))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_places_however_far_are_reflected_into_the_image(mode, corners, kind):
    """Reflection is right for positions up to the largest float32."""
    n = 4
    image = np.arange(1, n * n + 1, dtype=np.float64).reshape(1, 1, n, n)
    given = np.array([1e3 + 0.25, -1e4 - 0.5, 3e6 + 0.5, 4194304.5, -1e7, 1e10, -1e10, 2.0**40, 3e38, -3e38])
    dtype = np.float32 if kind == "float" else np.float64
    given = given.astype(dtype)
    grid = np.stack([given, np.full_like(given, -1.0 if corners else -0.75)], -1)[None, None]
    with context(kind):
        x, g = leaves([image.astype(dtype), grid])
        y = F.warp_by_grid(x, g, mode, "reflect", corners)
        y.forward()
        for v in (x, g):
            v.grad.zero()
        y.backward()
        gx, gg = x.g, g.g
    assert (y.d >= 1).all()
    assert (y.d <= n).all()
    assert np.isfinite(gx).all()
    assert np.isfinite(gg).all()
    np.testing.assert_allclose(gx.sum(), len(given), rtol=1e-6)
    for got, place in zip(y.d.ravel()[:-2], given[:-2].astype(WIDE), strict=True):
        at = (place + 1) / 2 * (n - 1) if corners else ((place + 1) * n - 1) / 2
        exact = reflected(at, n, corners)
        if mode == "linear":
            np.testing.assert_allclose(got, 1 + exact, atol=1e-3, err_msg=str(place))
        else:
            assert abs(got - 1 - exact) <= 0.501, place


@pytest.mark.parametrize("mode", MODES)
def test_what_is_infinite_stays_with_the_element_that_it_is_a_gradient_of(mode):
    """Infinite elements and gradients of a resized image reach only the elements that share them."""
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    for arguments, count in (
        ({"align_corners": True}, 3),
        ({"align_corners": True}, 5),
        ({"half_pixel": True}, 9),
        ({}, 6),
        ({"mode": "nearest"}, 6),
    ):
        size = {"output_size": (count,), "mode": "linear", **arguments}
        with np.errstate(all="ignore"):
            weights = [
                differentiated(lambda v: F.interpolate(v, **size), [x], "static", one[None])[0][0]  # noqa: B023
                for one in np.eye(count, dtype=np.float32)
            ]
        for at in range(count):
            gy = np.ones((1, count), np.float32)
            gy[0, at] = INF
            (g,) = differentiated(lambda v: F.interpolate(v, **size), [x], mode, gy)  # noqa: B023
            assert not np.isnan(g).any(), (arguments, count, at)
            assert (np.isinf(g[0]) == (weights[at] != 0)).all(), (arguments, count, at)
    # The same with infinite elements.
    (v,) = leaves([np.array([[[[1.0, INF, 3.0], [4.0, 5.0, 6.0]]]], np.float32)])
    y = F.interpolate(v, output_size=(3, 5), mode="linear", align_corners=True)
    y.forward()
    assert np.isinf(y.d[0, 0, 0]).tolist() == [False, True, True, True, False]
    assert np.isfinite(y.d[0, 0, 2]).all()


@pytest.mark.parametrize("mode", MODES)
def test_warps_do_not_touch_elements_that_they_have_no_share_of(mode):
    """Elements with weight zero do not contribute, even if infinite."""
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    places = np.linspace(-1, 1, 3, dtype=np.float32)
    grid = np.stack(np.meshgrid(places, places), -1)[None]
    gy = np.ones((1, 1, 3, 3), np.float32)
    gy[0, 0, 1, 1] = INF
    for border in ("zero", "repeat", "reflect"):
        warp = lambda a, b, border=border: F.warp_by_grid(a, b, "linear", border, True)  # noqa: E731
        g, _ = differentiated(warp, [image, grid], mode, gy)
        np.testing.assert_array_equal(g, gy)
        spoilt = np.where(gy == INF, INF, image).astype(np.float32)
        y = F.warp_by_grid(*leaves([spoilt, grid]), "linear", border, True)
        y.forward()
        np.testing.assert_array_equal(y.d, spoilt)


@pytest.mark.parametrize("mode", MODES)
def test_boxes_do_not_touch_elements_that_they_have_no_share_of(mode):
    """`roi_align` passes no NaN to elements with weight zero."""
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    boxes = nn.Variable.from_numpy_array(np.array([[0, 1, 1, 3, 3]], np.float32))
    gy = np.array([[[[1, INF], [3, 4]]]], np.float32)
    align = {"output_size": (2, 2), "spatial_scale": (1, 1), "sampling_ratio": 1}
    (g,) = differentiated(lambda x: F.roi_align(x, boxes, **align), [image], mode, gy)
    assert not np.isnan(g).any()
    assert np.isinf(g).sum() == 1


@pytest.mark.parametrize("kind", ["half", "bfloat16", "float", "double"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 0.0), (-3.0, -1.0), (1.0, 1.001), (-2.0, 3.0)])
def test_the_end_of_a_range_is_not_drawn(kind, low, high):
    with context(kind):
        y = F.rand(low, high, shape=(300_000,), seed=7)
        y.forward()
        ends = nn.Variable.from_numpy_array(np.array([low, high])) * 1.0
        ends.forward()
        low, high = np.asarray(ends.d, np.float64)
        drawn = np.asarray(y.d, np.float64)
    assert drawn.min() >= low
    assert drawn.max() < high or low == high
    if high - low >= 1:
        assert abs(drawn.mean() - (low + high) / 2) < 0.01 * (high - low)


def test_patches_and_initial_values_do_not_reach_the_end_of_their_range():
    with context("bfloat16"):
        x = nn.Variable.from_numpy_array(np.zeros((4, 1, 128, 128), np.float32))
        y = F.random_erase(x, prob=1.0, area_ratios=(0.9, 0.9), replacements=(0.5, 1.0), n=3, seed=3)
        y.forward()
        assert y.d.max() < 1

    class Rounded:
        """A generator whose numbers round up to the end of their range."""

        def uniform(self, low, high, size):
            """Returns the largest numbers below `high`."""
            return np.full(size, np.nextafter(high, low))

    made = UniformInitializer((-1, 1), Rounded())((3,))
    assert made.dtype == np.float32
    assert made.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_rates_that_have_reached_their_end_stay_there(n):
    """Learning rates never rise again after the end of a schedule."""
    schedules = (
        CosineScheduler(0.1, n),
        PolynomialScheduler(0.1, n, 2.0),
        PolynomialScheduler(0.1, n, 0.5),
        ExponentialScheduler(0.1, 0.5, n),
        StepScheduler(0.1, 0.5, [n]),
    )
    for schedule in schedules:
        for of in (schedule, LinearWarmupScheduler(schedule, 1)):
            rates = [of.get_learning_rate(i) for i in range(3 * n + 2)]
            assert all(b <= a for a, b in itertools.pairwise(rates)), type(schedule)
    assert schedules[0].get_learning_rate(n) == schedules[0].get_learning_rate(10**9) == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_zero_are_normalized_to_zero_and_leave_again(mode):
    """`spectral_norm` of zeros is zero and leaves `u` as it is, so that other weights are normalized later."""
    u = nn.Variable.from_numpy_array(np.array([0.6, 0.8], np.float32))
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    for eps in (1e-12, 0.0):
        (g,) = differentiated(lambda w: F.spectral_norm(w, u, dim=0, itr=3, eps=eps), [zeros], mode, ones)  # noqa: B023
        assert g.tolist() == zeros.tolist()
        np.testing.assert_array_equal(u.d, np.array([0.6, 0.8], np.float32))
    y = F.spectral_norm(nn.Variable.from_numpy_array(zeros), u, dim=0)
    y.forward()
    assert y.d.tolist() == zeros.tolist()
    y = F.spectral_norm(nn.Variable.from_numpy_array(ones), u, dim=0, itr=5)
    y.forward()
    np.testing.assert_allclose(np.linalg.svd(y.d)[1][0], 1, rtol=1e-5)
