"""Functions at special points: zeros, infinities, NaN, subnormal and largest numbers, ties, saturation.

The first test compares the backward kernel of each operation with its graph rule. The others hold known facts: limits
in float64, and PyTorch's derivatives where it has the function. `docs/differences.md` names the rest.
"""

import fractions
import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from support import TABLE, call, smooth

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import autodiff

INF, NAN = np.inf, np.nan
KINDS = {"float": np.float32, "double": np.float64}
"""The NumPy element type of each context."""
POINTS = (0.0, -0.0, INF, -INF, NAN, 1e-40, 3e38, -3e38, 1e20, -1e20, 30.0, -30.0)
"""Values to put into inputs."""
SMALL = [name for name, rows in TABLE.items() if any(smooth(row) for row in rows)]
"""Names of all operations that have a smooth row. The test takes only rows of few elements."""

LARGEST = {3e38, -3e38}
"""Numbers near the limit of float32."""
ENDS = {INF, -INF} | LARGEST
"""Infinities and numbers near the limit of float32."""
APART = {
    # A scale of 3e38 times the gradient of the output overflows, unless it is divided first.
    **dict.fromkeys(("batch_normalization", "fused_batch_normalization", "fused_convolution"), LARGEST),
    **dict.fromkeys(("instance_normalization", "layer_normalization", "tensor_normalization"), LARGEST),
    "group_normalization": LARGEST,
    # Terms of 1e20 cancel.
    "scaled_dot_product_attention": ENDS | {1e20, -1e20},
}
"""Points at which kernel and rule round or overflow in another order, as `docs/differences.md` says."""


def context(kind):
    """Returns a context scope with this element type."""
    return nn.context_scope(nn.Context([f"cpu:{kind}"]))


def gradients(row, arrays, create_graph):
    """Returns the gradients of a row at these inputs, by kernels, or by graph rules if `create_graph`."""
    xs = [a if a is None else nn.Variable.from_numpy_array(a, need_grad=i in row.wanted) for i, a in enumerate(arrays)]
    ys = [y for y in call(row, xs) if y.need_grad and y.d.dtype.kind not in "biu"]
    rng = np.random.RandomState(1)
    gy = [rng.uniform(0.5, 2, y.shape).astype(y.d.dtype) for y in ys]
    by = [xs[i] for i in row.wanted]
    found = autodiff.grad(ys, by, gy, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    return [np.array(g.d) for g in found]


def differ(a, b, kind):
    """Returns a mask of gradients that differ by more than another order of summation explains."""
    near, least = (2e-4, 1e-6) if kind == "float" else (1e-9, 1e-13)
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        size = np.abs(np.where(finite, b, 0))
        rounding = near * (size + min(1.0, size.max(initial=0))) + least
        return ~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & (np.abs(a - b) <= rounding)))


@pytest.mark.parametrize("name", SMALL)
def test_kernels_and_rules_agree_at_special_points(name):
    rows = [row for row in TABLE[name] if smooth(row) and row.second]
    small = [row for row in rows if 0 < sum(x.size for x in row.inputs if x is not None) <= 400]
    for row in {str(row.args): row for row in reversed(small)}.values():
        for i in (i for i in row.wanted if row.inputs[i].size):
            for point in POINTS:
                if point in APART.get(name, ()):
                    continue
                kind = "float" if abs(point) == 3e38 or abs(point) == 1e-40 else "double"
                arrays = [x if x is None or x.dtype.kind != "f" else x.astype(KINDS[kind]) for x in row.inputs]
                arrays[i].reshape(-1)[::3] = point
                with context(kind), nn.auto_forward():
                    kernel, rule = (gradients(row, arrays, create_graph) for create_graph in (False, True))
                for by, (a, b) in enumerate(zip(kernel, rule, strict=True)):
                    where = f"{row}, input {i} with {point}, gradient {by}: kernel {a.ravel()}, rule {b.ravel()}"
                    assert not differ(a, b, kind).any(), where


SCALED = {
    "batch_normalization": (lambda x, b, g: F.batch_normalization(x, b, g, None, None, axes=[1]), (1,)),
    "batch_normalization last": (lambda x, b, g: F.batch_normalization(x, b, g, None, None, axes=[2]), (2,)),
    "instance_normalization": (lambda x, b, g: F.instance_normalization(x, b, g), (1,)),
    "instance_normalization last": (lambda x, b, g: F.instance_normalization(x, b, g, channel_axis=2), (2,)),
    "group_normalization": (lambda x, b, g: F.group_normalization(x, b, g, num_groups=2), (1,)),
    "group_normalization last": (lambda x, b, g: F.group_normalization(x, b, g, num_groups=2, channel_axis=2), (2,)),
    "layer_normalization": (lambda x, b, g: F.layer_normalization(x, b, g), (1, 2)),
    "layer_normalization of channels": (lambda x, b, g: F.layer_normalization(x, b, g, batch_axis=(0, 2)), (1,)),
    "tensor_normalization": (lambda x, b, g: F.tensor_normalization(x, axes=[1], beta=b, gamma=g), (1,)),
}
"""Normalizations with scale and shift, and the axes of these."""


@pytest.mark.parametrize("signs", ["mixed", "equal"])
@pytest.mark.parametrize("shape", [(2, 4, 6), (3, 4, 40)])
@pytest.mark.parametrize("name", SCALED)
def test_normalizations_with_an_infinite_scale_or_shift(name, shape, signs):
    """Kernel and rule agree. Outputs follow the definition, and other channels and samples stay finite."""
    f, axes = SCALED[name]
    rng = np.random.RandomState(3)
    x, gy = rng.normal(size=shape), rng.normal(size=shape)
    gy = np.abs(gy) if signs == "equal" else gy
    params = [n if axis in axes else 1 for axis, n in enumerate(shape)]
    for which, point in itertools.product((1, 2), (INF, -INF, NAN)):
        arrays = [x, rng.normal(size=params), rng.normal(size=params)]
        with context("double"), nn.auto_forward():
            plain = f(*map(nn.Variable.from_numpy_array, (x, np.zeros(params), np.ones(params)))).d
            arrays[which].reshape(-1)[1] = point
            vs = [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]
            y = f(*vs)
            kernel, rule = (
                [np.array(g.d) for g in autodiff.grad([y], vs, [gy], create_graph=again, retain_graph=True)]
                for again in (False, True)
            )
            expected = plain * arrays[2] + arrays[1]
        np.testing.assert_allclose(y.d, expected, rtol=1e-9)
        for a, b in zip(kernel, rule, strict=True):
            assert not differ(a, b, "double").any(), (name, which, point, a, b)
        assert np.isfinite(kernel[1]).all() and np.isfinite(kernel[2]).all()
        if which == 1:
            assert np.isfinite(kernel[0]).all()
        elif axes == (1,) and "layer" not in name:
            group = 2 if "group" in name else 1
            assert np.isfinite(kernel[0][:, 2:] if group == 2 else np.delete(kernel[0], 1, axis=1)).all()


SIXTEEN = {
    "half": (np.float16, 2.0**-10, 6e-8, (0.0, -0.0, INF, -INF, NAN, 6e-8, 65504.0, -65504.0, 300.0, 30.0, -30.0)),
    "bfloat16": (ml_dtypes.bfloat16, 2.0**-7, 1e-40, POINTS),
}
"""Contexts of 16 bits: the element type, its spacing at 1, its least number, and values to put into inputs."""
NARROW_APART = {
    **APART,
    # Terms cancel. One of them is the rounded output.
    "scaled_dot_product_attention": APART["scaled_dot_product_attention"] | {65504.0, -65504.0, 300.0, 30.0, -30.0},
    # Weights rounded to bfloat16 overflow earlier.
    **dict.fromkeys(("binary_weight_affine", "binary_weight_convolution"), LARGEST),
    # Hidden states that overflow: the kernel reads the rounded outputs, the rule computes them again.
    "rnn": {65504.0, -65504.0, 300.0} | LARGEST,
}
"""Points at which kernel and rule round or overflow in another order in 16 bits."""
COARSE = {"fused_convolution", "rnn", "lstm", "gru", "batch_matmul", "scaled_dot_product_attention"}
COARSE |= {"binary_weight_affine", "binary_weight_convolution"}
"""Operations whose kernel reads rounded outputs that the rule computes again, or multiplies in bfloat16."""


def differ_in_16_bits(a, b, kind, name):
    """Returns a mask of gradients that differ by more than one rounding of them, or of their terms if coarse."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    _, spacing, least, _ = SIXTEEN[kind]
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        size = np.abs(np.where(finite, b, 0))
        most = size.max(initial=0)
        rounding = 1.01 * (spacing * size + least) + (
            spacing * (16 * most + 1) if name in COARSE else 2e-4 * min(1.0, most)
        )
        return ~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & (np.abs(a - b) <= rounding)))


@pytest.mark.parametrize("kind", SIXTEEN)
@pytest.mark.parametrize("name", SMALL)
def test_kernels_and_rules_agree_in_16_bits(name, kind):
    """A rule is computed in float32, as the sums in a kernel are, and only its results are rounded."""
    narrow, _, _, points = SIXTEEN[kind]
    rows = [row for row in TABLE[name] if smooth(row) and row.second]
    small = [row for row in rows if 0 < sum(x.size for x in row.inputs if x is not None) <= 400]
    for row in {str(row.args): row for row in reversed(small)}.values():
        for i in (i for i in row.wanted if row.inputs[i].size):
            # A leaf of float32 has a gradient of float32.
            for point, stored in [(None, np.float32), *((point, narrow) for point in (None, *points))]:
                if point in NARROW_APART.get(name, ()):
                    continue
                arrays = [x if x is None or x.dtype.kind != "f" else x.astype(narrow) for x in row.inputs]
                if point is not None:
                    arrays[i].reshape(-1)[::3] = point
                arrays = [x if x is None or x.dtype != narrow else x.astype(stored) for x in arrays]
                with context(kind), nn.auto_forward():
                    kernel, rule = (gradients(row, arrays, create_graph) for create_graph in (False, True))
                for by, (a, b) in enumerate(zip(kernel, rule, strict=True)):
                    where = f"{row}, input {i} with {point}, gradient {by}: kernel {a.ravel()}, rule {b.ravel()}"
                    assert not differ_in_16_bits(a, b, kind, name).any(), where


@pytest.mark.parametrize("kind", SIXTEEN)
def test_static_graphs_of_gradients_in_16_bits_are_finite_where_kernels_are(kind):
    """Gradients by `nn.grad` in static graphs, run before and after their plans are fused, equal those by kernels."""
    rng = np.random.RandomState(3)
    x, probabilities = rng.randn(4, 6), rng.uniform(0, 1, (4, 6))
    probabilities[0, :2] = 0.0, 1.0
    ends = np.array([[INF, -INF, 300.0, -300.0]])
    for f, *arrays in (
        (F.binary_cross_entropy, probabilities, np.round(probabilities)),
        (lambda p, q: F.kl_multinomial(p, q), probabilities, probabilities[::-1].copy()),
        (lambda x, g: F.layer_normalization(x, gamma=g), x, np.full((1, 6), 3e4)),
        (lambda x, g: F.group_normalization(x, gamma=g, num_groups=2), x, np.full((1, 6), 3e4)),
        (F.swish, ends),
        (F.mish, ends),
        (F.prod, np.array([300.0, 300.0, 1e-3, 1e-3, 2.0])),
    ):
        with context(kind):
            xs = [nn.Variable.from_numpy_array(a.astype(SIXTEEN[kind][0]), need_grad=True) for a in arrays]
            y = f(*xs)
            gy = nn.Variable.from_numpy_array(rng.uniform(0.5, 1, y.shape).astype(SIXTEEN[kind][0]))
            rule = nn.grad([y], xs, grad_outputs=[gy])
            for _ in range(3):
                nn.forward_all([y, *rule])
            for v in xs:
                v.grad.zero()
            y.backward(gy.data)
        for v, g in zip(xs, rule, strict=True):
            assert v.g.dtype == g.d.dtype
            assert not np.isnan(v.g).any()
            assert not differ_in_16_bits(v.g, g.d, kind, "").any(), f"kernel {v.g}, rule {g.d}"


def clip(x):
    """Clips values to [-1, 1]."""
    return F.clip_by_value(x, -1.0, 1.0)


AT = (0.0, -0.0, INF, -INF, NAN, 1e-40, 3e38, -3e38, 40.0, -40.0)
"""Points at which `FACTS` lists values and derivatives."""
# Value and derivative at each of these. `None` is not checked: it depends on rounding.
FACTS = {
    "relu": (F.relu, (0, 0, INF, 0, NAN, 1e-40, 3e38, 0, 40, 0), (0, 0, 1, 0, 1, 1, 1, 0, 1, 0)),
    "relu6": (F.relu6, (0, 0, 6, 0, NAN, 1e-40, 6, 0, 6, 0), (0, 0, 0, 0, 0, 1, 0, 0, 0, 0)),
    "leaky_relu": (
        lambda x: F.leaky_relu(x, 0.25),
        (0, 0, INF, -INF, NAN, 1e-40, 3e38, -7.5e37, 40, -10),
        (0.25, 0.25, 1, 0.25, 0.25, 1, 1, 0.25, 1, 0.25),
    ),
    "hard_tanh": (F.hard_tanh, (0, 0, 1, -1, NAN, 1e-40, 1, -1, 1, -1), (1, 1, 0, 0, 0, 1, 0, 0, 0, 0)),
    "hard_sigmoid": (
        F.hard_sigmoid,
        (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0),
        (0.2, 0.2, 0, 0, 0, 0.2, 0, 0, 0, 0),
    ),
    "hard_swish": (F.hard_swish, (0, 0, INF, 0, NAN, 5e-41, 3e38, 0, 40, 0), (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0)),
    "elu": (F.elu, (0, 0, INF, -1, NAN, 1e-40, 3e38, -1, 40, -1), (1, 1, 1, 0, NAN, 1, 1, 0, 1, None)),
    "selu": (
        F.selu,
        (0, 0, INF, -1.7580993, NAN, None, None, -1.7580993, 42.02804, -1.7580993),
        (1.7580993, 1.7580993, 1.05070098, 0, NAN, 1.05070098, 1.05070098, 0, 1.05070098, None),
    ),
    "abs": (F.abs, (0, 0, INF, INF, NAN, 1e-40, 3e38, 3e38, 40, 40), (1, 1, 1, -1, 0, 1, 1, -1, 1, -1)),
    "clip_by_value": (clip, (0, 0, 1, -1, NAN, 1e-40, 1, -1, 1, -1), (1, 1, 0, 0, 0, 1, 0, 0, 0, 0)),
    "maximum_scalar": (
        lambda x: F.maximum_scalar(x, 0.0),
        (0, 0, INF, 0, NAN, 1e-40, 3e38, 0, 40, 0),
        (0, 0, 1, 0, 0, 1, 1, 0, 1, 0),
    ),
    "minimum_scalar": (
        lambda x: F.minimum_scalar(x, 0.0),
        (0, 0, 0, -INF, NAN, 0, 0, -3e38, 0, -40),
        (0, 0, 0, 1, 0, 0, 0, 1, 0, 1),
    ),
    "reset_nan": (F.reset_nan, (0, 0, INF, -INF, 0, 1e-40, 3e38, -3e38, 40, -40), (1, 1, 1, 1, 0, 1, 1, 1, 1, 1)),
    "reset_inf": (F.reset_inf, (0, 0, 0, 0, NAN, 1e-40, 3e38, -3e38, 40, -40), (1, 1, 0, 0, 1, 1, 1, 1, 1, 1)),
    "swish": (F.swish, (0, 0, INF, 0, NAN, 5e-41, 3e38, 0, 40, 0), (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0)),
    "gelu": (F.gelu, (0, 0, INF, 0, NAN, 5e-41, 3e38, 0, 40, 0), (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0)),
    "mish": (F.mish, (0, 0, INF, 0, NAN, 6e-41, 3e38, 0, 40, 0), (0.6, 0.6, 1, 0, NAN, 0.6, 1, 0, 1, 0)),
    "softplus": (
        F.softplus,
        (np.log(2), np.log(2), INF, 0, NAN, np.log(2), 3e38, 0, 40, 0),
        (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0),
    ),
    "log_sigmoid": (
        F.log_sigmoid,
        (-np.log(2), -np.log(2), 0, -INF, NAN, -np.log(2), 0, -3e38, 0, -40),
        (0.5, 0.5, 0, 1, NAN, 0.5, 0, 1, 0, 1),
    ),
    "sigmoid": (F.sigmoid, (0.5, 0.5, 1, 0, NAN, 0.5, 1, 0, 1, 0), (0.25, 0.25, 0, 0, NAN, 0.25, 0, 0, 0, 0)),
    "tanh": (F.tanh, (0, 0, 1, -1, NAN, 1e-40, 1, -1, 1, -1), (1, 1, 0, 0, NAN, 1, 0, 0, 0, 0)),
    "softsign": (
        F.softsign,
        (0, 0, 1, -1, NAN, 1e-40, 1, -1, 40 / 41, -40 / 41),
        (1, 1, 0, 0, NAN, 1, 0, 0, None, None),
    ),
    "tanh_shrink": (F.tanh_shrink, (0, 0, INF, -INF, NAN, 0, 3e38, -3e38, 39, -39), (0, 0, 1, 1, NAN, 0, 1, 1, 1, 1)),
    "erf": (F.erf, (0, 0, 1, -1, NAN, None, 1, -1, 1, -1), (None, None, 0, 0, NAN, None, 0, 0, 0, 0)),
    "exp": (F.exp, (1, 1, INF, 0, NAN, 1, INF, 0, None, 0), (1, 1, INF, 0, NAN, 1, INF, 0, None, 0)),
    "binary_tanh": (F.binary_tanh, (-1, -1, 1, -1, NAN, 1, 1, -1, 1, -1), (1, 1, 0, 0, 0, 1, 0, 0, 0, 0)),
    "binary_sigmoid": (F.binary_sigmoid, (0, 0, 1, 0, NAN, 1, 1, 0, 1, 0), (0.5, 0.5, 0, 0, 0, 0.5, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", FACTS)
def test_values_and_derivatives_are_the_limits(name):
    """Values and derivatives at special points are the mathematical limits."""
    f, *expected = FACTS[name]
    with context("float"), nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.array(AT, np.float32), need_grad=True)
        y = f(x)
        (kernel,) = autodiff.grad(y, x, [np.ones(len(AT), np.float32)])
        y = f(x)
        (rule,) = autodiff.grad(y, x, [np.ones(len(AT), np.float32)], create_graph=True)
    for told, found, of in ((expected[0], y, "value"), (expected[1], kernel, "kernel"), (expected[1], rule, "rule")):
        for point, a, b in zip(AT, found.d.tolist(), told, strict=True):
            same = b is None or np.isclose(a, b, 1e-5, 1e-6, equal_nan=True)
            assert same, f"{name}: {of} at {point}: expected {b}, got {a}"


@pytest.mark.parametrize("name", ["swish", "gelu", "mish", "softplus", "elu", "selu", "hard_swish", "tanh", "sigmoid"])
def test_second_derivatives_of_saturating_functions_are_zero_at_the_ends(name):
    at = np.array([INF, -INF, 3e38, -3e38, 1e20, -1e20], np.float32)
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(at, need_grad=True)
        (g,) = autodiff.grad(F.sum(FACTS[name][0](x)), x, create_graph=True)
        (second,) = autodiff.grad(F.sum(g), x)
    assert second.d.tolist() == [0] * len(at)


X = np.array([1.0, -2.0, 3.0, -4.0, 0.5, -6.0], np.float32)
"""An input with positive and negative elements."""
POSITIVE = X > 0
"""True for the positive elements of `X`."""
GY = np.array([1.0, INF, 2.0, -INF, INF, NAN], np.float32)
"""A gradient of the output with infinities and NaN."""
ZEROS = np.zeros_like(X)
"""Zeros of the shape of `X`."""
LABELS = nn.Variable.from_numpy_array(np.array([[1], [-1], [0]]))
"""Labels of three rows. The second row is ignored."""
SCORES = np.array([[0.5, 1.0], [NAN, INF], [2.0, 1.0]], np.float32)
"""Scores of three rows for two classes. The ignored row has NaN and infinity."""
OF_ROWS = np.array([[1.0], [INF], [2.0]], np.float32)
"""The gradient of the loss of each row."""


def array(values):
    """Returns a float32 variable without gradient."""
    return nn.Variable.from_numpy_array(np.asarray(values, np.float32))


# Function, inputs, gradient of the output, and the mask of zero gradients for each input.
UNTAKEN = {
    "relu": (F.relu, [X], GY, [~POSITIVE]),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.0), [X], GY, [~POSITIVE]),
    "prelu": (
        lambda x, w: F.prelu(x, w),
        [np.array([INF, 2, 3], np.float32), np.float32([0.5])],
        GY[1:4],
        [None, [True]],
    ),
    "prelu without slope": (lambda x: F.prelu(x, array([0.0])), [X], GY, [~POSITIVE]),
    "elu": (F.elu, [np.where(POSITIVE, X, -1e4)], GY, [~POSITIVE]),
    "selu": (F.selu, [np.where(POSITIVE, X, -1e4)], GY, [~POSITIVE]),
    "relu6": (F.relu6, [np.where(POSITIVE, X, [0, 7, 0, INF, 0, -INF])], GY, [~POSITIVE]),
    "hard_tanh": (F.hard_tanh, [np.where(POSITIVE, X / 4, [0, 7, 0, INF, 0, -INF])], GY, [~POSITIVE]),
    "hard_sigmoid": (F.hard_sigmoid, [np.where(POSITIVE, X / 4, [0, 7, 0, INF, 0, -INF])], GY, [~POSITIVE]),
    "hard_swish": (F.hard_swish, [np.where(POSITIVE, X, [0, -7, 0, -INF, 0, -3])], GY, [~POSITIVE]),
    "maximum_scalar": (lambda x: F.maximum_scalar(x, 0.0), [X], GY, [~POSITIVE]),
    "minimum_scalar": (lambda x: F.minimum_scalar(x, 0.0), [-X], GY, [~POSITIVE]),
    "clip_by_value": (lambda x: F.clip_by_value(x, 0.0, 9.0), [X], GY, [~POSITIVE]),
    "clip_by_value of arrays": (F.clip_by_value, [X, ZEROS, ZEROS + 9], GY, [~POSITIVE, POSITIVE, ZEROS == 0]),
    "maximum2": (F.maximum2, [X, ZEROS], GY, [~POSITIVE, POSITIVE]),
    "minimum2": (F.minimum2, [X, ZEROS], GY, [POSITIVE, ~POSITIVE]),
    "maximum2 of one": (
        F.maximum2,
        [np.array([[1.0], [2]], np.float32), np.array([[0.0, 0], [3, 3]], np.float32)],
        np.array([[1, 2], [INF, INF]], np.float32),
        [[[False], [True]], [[True, True], [False, False]]],
    ),
    "where": (lambda a, b: F.where(array(POSITIVE), a, b), [X, X], GY, [~POSITIVE, POSITIVE]),
    "bool_fill": (lambda x: F.bool_fill(x, array(~POSITIVE), 1.0), [X], GY, [~POSITIVE]),
    "crelu": (lambda x: F.crelu(x, axis=0), [X], np.concatenate([GY, np.where(POSITIVE, GY, 1)]), [ZEROS == 1]),
    "celu": (
        lambda x: F.celu(x, axis=0),
        [np.where(POSITIVE, 1e4, -1e4)],
        np.where(np.tile(POSITIVE, 2), 1, INF),
        [ZEROS == 1],
    ),
    "reset_nan": (F.reset_nan, [np.where(POSITIVE, X, NAN)], GY, [~POSITIVE]),
    "reset_inf": (F.reset_inf, [np.where(POSITIVE, X, INF)], GY, [~POSITIVE]),
    "epsilon_insensitive_loss": (
        lambda x: F.epsilon_insensitive_loss(x, array(ZEROS), 0.25),
        [np.where(POSITIVE, X, 0.1)],
        GY,
        [~POSITIVE],
    ),
    "binary_tanh": (F.binary_tanh, [np.where(POSITIVE, X / 8, X)], GY, [~POSITIVE]),
    "binary_sigmoid": (F.binary_sigmoid, [np.where(POSITIVE, X / 8, X)], GY, [~POSITIVE]),
    "fixed_point_quantize": (F.fixed_point_quantize, [np.where(POSITIVE, X, 99)], GY, [~POSITIVE]),
    "pow2_quantize": (F.pow2_quantize, [np.where(POSITIVE, X / 4, 99)], GY, [~POSITIVE]),
    "min_max_quantize": (
        lambda x: F.min_max_quantize(x, *(array([v]) for v in (-5, 5, 0, 255)), x_min_max=False, ema=False),
        [np.where(POSITIVE, X, 99)],
        GY,
        [~POSITIVE],
    ),
    "max": (lambda x: F.max(x.reshape((2, 3)), axis=1), [X], GY[:2], [[True, True, False, True, False, True]]),
    "min": (lambda x: F.min(x.reshape((2, 3)), axis=1), [X], GY[:2], [[True, False, True, True, True, False]]),
    "top_k_data": (
        lambda x: F.top_k_data(x.reshape((2, 3)), 1, base_axis=1),
        [X],
        GY[:2, None],
        [[True, True, False, True, False, True]],
    ),
    "sort": (lambda x: F.sort(x.reshape((2, 3)))[:, 2:], [X], GY[:2, None], [[True, True, False, True, False, True]]),
    "max_pooling": (
        lambda x: F.max_pooling(x.reshape((1, 1, 2, 3)), (2, 3)),
        [X],
        np.full((1, 1, 1, 1), INF),
        [[True, True, False, True, True, True]],
    ),
    "gather": (lambda x: F.gather(x, array([2, 0]), axis=0), [X], GY[:2], [[False, True, False, True, True, True]]),
    "slice": (lambda x: x[2:3], [X], np.array([INF]), [[True, True, False, True, True, True]]),
    "cumprod": (lambda x: F.cumprod(x, axis=0), [X], np.array([INF, 1, 1, 1, 1, 1]), [[False] + [None] * 5]),
    "exclusive cumprod": (
        lambda x: F.cumprod(x, axis=0, exclusive=True),
        [np.where(POSITIVE, X, [1, 1, 1, 1, 1, INF])],
        np.array([INF, 1, 1, 1, 1, 1]),
        [[None] * 5 + [True]],
    ),
    "softmax_cross_entropy": (
        lambda x: F.softmax_cross_entropy(x, LABELS),
        [SCORES],
        OF_ROWS,
        [np.isinf(OF_ROWS) & (SCORES != 7)],
    ),
    "softmax_cross_entropy along axis 0": (
        lambda x: F.softmax_cross_entropy(x, F.transpose(LABELS, (1, 0)), axis=0),
        [SCORES.T.copy()],
        OF_ROWS.T.copy(),
        [np.isinf(OF_ROWS.T) & (SCORES.T != 7)],
    ),
    "categorical_cross_entropy": (
        lambda x: F.categorical_cross_entropy(x, LABELS),
        [SCORES],
        OF_ROWS,
        [np.isinf(OF_ROWS) & (SCORES != 7)],
    ),
}


@pytest.mark.parametrize("name", UNTAKEN)
def test_a_branch_that_is_not_taken_gives_exactly_zero(name):
    f, arrays, gy, zero = UNTAKEN[name]
    with nn.auto_forward():
        xs = [nn.Variable.from_numpy_array(np.array(x, np.float32), need_grad=True) for x in arrays]
        g = nn.Variable.from_numpy_array(np.array(gy, np.float32), need_grad=True)
        kernel = autodiff.grad(f(*xs), xs, [g], materialize_grads=True)
        rule = autodiff.grad(f(*xs), xs, [g], create_graph=True, materialize_grads=True)
        first = [np.array(v.d) for v in rule]
        # Elements with a zero gradient keep it when the inputs change.
        total = sum(
            (F.sum(F.where(array(z), v, v * 0.0)) for v, z in zip(rule, map(known, zero, rule), strict=True)),
            start=F.constant(0.0, ()),
        )
        second = autodiff.grad(total, [*xs, g], allow_unused=True, materialize_grads=True)
    for x, a, b, z in zip(xs, kernel, first, zero, strict=True):
        z = known(z, x)
        assert not a.d[z].any(), f"kernel: {a.d}"
        assert len(arrays) > 1 or not np.isnan(a.d).any(), f"kernel: {a.d}"
        assert not b[z].any(), f"rule: {b}"
        np.testing.assert_allclose(a.d, b, 1e-5, 1e-6)
    for v, z in zip(second, zero, strict=False):
        assert not v.d[known(z, v)].any(), f"second: {v.d}"
    y = f(*xs)
    for _ in range(3):  # the plan is fused from the second run on
        y.forward(clear_no_need_grad=True)
        for x in xs:
            x.grad.zero()
        y.backward(np.array(gy, np.float32), clear_buffer=True)
        for x, a in zip(xs, kernel, strict=True):
            np.testing.assert_array_equal(x.g, a.d)


def known(zero, x):
    """Returns the mask of elements of `x` whose gradient must be zero. `zero` is such a mask in any form, or None."""
    if zero is None:
        return np.zeros(x.shape, bool)
    return np.array(np.vectorize(bool, otypes=[bool])(np.asarray(zero, object)), bool).reshape(x.shape)


@pytest.mark.parametrize("name", ["relu", "maximum_scalar", "clip_by_value", "leaky_relu", "relu6", "maximum2"])
@pytest.mark.parametrize("kind", ["float", "double", "half", "bfloat16"])
def test_a_training_step_through_a_root_at_zero_slope_stays_finite(name, kind):
    f = {
        "relu": F.relu,
        "maximum_scalar": lambda x: F.maximum_scalar(x, 0.0),
        "clip_by_value": lambda x: F.clip_by_value(x, 0.0, 100.0),
        "leaky_relu": lambda x: F.leaky_relu(x, 0.0),
        "relu6": F.relu6,
        "maximum2": lambda x: F.maximum2(x, F.constant(0.0, x.shape)),
    }[name]
    x = np.random.RandomState(3).randn(20, 5)
    for dynamic in (False, True):
        nn.clear_parameters()
        nn.seed(1)
        with context(kind), nn.auto_forward(dynamic):
            solver = S.Sgd(1e-3)
            loss = None
            for _ in range(4):  # fused from the second run on
                if dynamic or loss is None:
                    h = PF.affine(nn.Variable.from_numpy_array(x), 7, name=name)
                    loss = F.sum(F.pow_scalar(f(h), 0.5))
                solver.set_parameters(nn.get_parameters(), reset=False)
                solver.zero_grad()
                loss.forward(clear_no_need_grad=True)
                loss.backward(clear_buffer=True)
                solver.update()
            assert all(np.isfinite(p.d).all() for p in nn.get_parameters().values())
    nn.clear_parameters()


def test_dropped_and_erased_elements_are_zero():
    """Infinite gradients of dropped and erased elements do not give NaN."""
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.ones((1, 1, 20, 20), np.float32), need_grad=True)
        for f in (
            lambda: F.dropout(x, 0.5, seed=3),
            lambda: F.random_erase(x, prob=1.0, replacements=(9.0, 9.0), seed=3),
        ):
            for create_graph in (False, True):
                y = f()
                gone = (y.d == 0) | (y.d == 9)
                assert gone.any()
                (g,) = autodiff.grad(y, x, [np.where(gone, INF, 1).astype(np.float32)], create_graph=create_graph)
                assert not g.d[gone].any()
                assert np.isfinite(g.d).all()


@pytest.mark.parametrize("label", [-1, -7])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("add", [False, True])
def test_an_ignored_row_counts_for_nothing_whatever_it_holds(label, axis, add):
    rng = np.random.RandomState(0)
    x = rng.rand(3, 5, 4).astype(np.float32)
    t = rng.randint(0, 4, (3, 5, 1) if axis == 2 else (3, 1, 4))
    t.flat[::3] = label
    ignored = np.broadcast_to(t < 0, x.shape)
    for bad in (NAN, INF, -INF):
        for f in (F.softmax_cross_entropy, F.categorical_cross_entropy):
            clean, dirty = (
                nn.Variable.from_numpy_array(np.where(ignored, v, x).astype(np.float32), need_grad=True)
                for v in (0.5, bad)
            )
            for v in (clean, dirty):
                v.grad.fill(1.0 if add else 0.0)
                loss = F.sum(f(v, nn.Variable.from_numpy_array(t), axis=axis))
                loss.forward()
                loss.backward()
            assert np.isfinite(loss.d)
            np.testing.assert_array_equal(clean.g, dirty.g)
            rule = nn.grad([loss], [dirty])[0]
            rule.forward()
            np.testing.assert_allclose(rule.d + (1.0 if add else 0.0), dirty.g, 1e-5, 1e-6)


def test_a_row_of_nan_that_counts_stays_nan():
    x = nn.Variable.from_numpy_array(np.array([[NAN, 1.0], [1.0, 2.0]], np.float32), need_grad=True)
    y = F.softmax_cross_entropy(x, nn.Variable.from_numpy_array(np.array([[0], [1]])))
    y.forward()
    x.grad.zero()
    y.backward(np.array([[0.0], [1.0]], np.float32))
    assert np.isnan(x.g[0]).all()
    assert np.isfinite(x.g[1]).all()


def test_sigmoid_cross_entropy_at_infinities():
    """`sigmoid_cross_entropy` of infinite logits is zero or infinite, with gradients of magnitude zero or one."""
    x = nn.Variable.from_numpy_array(np.array([INF, INF, -INF, -INF], np.float32), need_grad=True)
    t = nn.Variable.from_numpy_array(np.array([0, 1, 0, 1], np.float32))
    y = F.sigmoid_cross_entropy(x, t)
    y.forward()
    x.grad.zero()
    y.backward()
    assert y.d.tolist() == [INF, 0, 0, INF]
    assert x.g.tolist() == [1, 0, 0, -1]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ((1e-30, 1e-30, 1e30), (1, 1, 0)),
        ((1e30, 1e30, 1e-30), (1, 1, INF)),
        ((INF, 2, 3), (6, INF, INF)),
        ((0.0, INF), (INF, 0)),
        ((NAN, 2), (2, NAN)),
        ((0.0, 1e-30, 1e-30, 1e30), (1e-30, 0, 0, 0)),
        ((2.0, 3.0, 4.0), (12, 8, 6)),
    ],
)
def test_the_gradient_of_a_product_that_leaves_the_range(x, expected):
    """Gradients of `prod` are right if the product of all elements overflows or vanishes."""
    for shape, axis in (((len(x),), 0), ((1, len(x)), 1), ((len(x), 1), 0)):
        v = nn.Variable.from_numpy_array(np.array(x, np.float32).reshape(shape), need_grad=True)
        y = F.prod(v, axis=axis)
        y.forward()
        v.grad.fill(1)
        y.backward()
        rule = nn.grad([y], [v])[0]
        rule.forward()
        np.testing.assert_allclose(v.g.ravel(), np.add(expected, 1), 1e-5)
        np.testing.assert_allclose(rule.d.ravel(), expected, 1e-5)


def attention(q, k, v, mask, heads_apart):
    """Returns attention by the kernel, or by `multi_head_attention` with identity weights if `heads_apart`."""
    if not heads_apart:
        return F.scaled_dot_product_attention(q, k, v, mask)
    one = array(np.eye(q.shape[-1]))
    q, k, v = (F.transpose(x, (1, 0, 2)) for x in (q, k, v))
    y, _ = F.multi_head_attention(q, k, v, 1, one, one, one, one, additive_mask=mask)
    return F.transpose(y, (1, 0, 2))


@pytest.mark.parametrize("how", ["kernel", "rule"])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e8, 1e30])
def test_weights_of_attention_beside_large_products(size, how):
    """Equal scores of attention give equal weights, however large the products are."""
    q, v = np.full((2, 3), size), np.arange(10.0).reshape(5, 2)
    q, k, v = (nn.Variable.from_numpy_array(x.astype(np.float32), need_grad=True) for x in (q, np.ones((5, 3)), v))
    with nn.auto_forward():
        y = F.scaled_dot_product_attention(q, k, v)
        gq, gv = autodiff.grad(y, [q, v], [np.ones((2, 2), np.float32)], create_graph=how == "rule")
    np.testing.assert_allclose(y.d, [[4, 5]] * 2, 1e-6)
    np.testing.assert_allclose(gv.d, 0.4, 1e-5)  # five keys share two queries evenly
    np.testing.assert_allclose(gq.d, 0, atol=1e-5)


@pytest.mark.parametrize("how", ["kernel", "rule"])
def test_a_query_that_is_not_a_number_leaves_later_values_alone(how):
    rng = np.random.RandomState(5)
    q, k, v = (nn.Variable.from_numpy_array(rng.randn(4, 3), need_grad=True) for _ in range(3))
    q.d[1] = NAN
    with nn.auto_forward():
        y = F.scaled_dot_product_attention(q, k, v, causal=True)
        (gv,) = autodiff.grad(y, v, [np.ones((4, 3))], create_graph=how == "rule")
    assert np.isnan(gv.d[:2]).all() and np.isfinite(gv.d[2:]).all()


@pytest.mark.parametrize("heads_apart", [False, True])
@pytest.mark.parametrize("how", ["kernel", "rule", "at once"])
def test_a_query_with_all_keys_masked_has_zero_gradients(how, heads_apart):
    rng = np.random.RandomState(5)
    q, k, v = rng.randn(2, 4, 3), rng.randn(2, 5, 3), rng.randn(2, 5, 3)
    mask = np.zeros((4, 5))
    mask[1], mask[0, 2:] = -INF, -INF

    def run(rows):
        """Returns output and gradients. Writes `rows` to the row whose keys are all masked, if given."""
        arrays = [x.copy() for x in (q, k, v)]
        gy = np.ones((2, 4, 3), np.float32)
        if rows is not None:
            arrays[0][:, 1], gy[:, 1] = rows
        xs = [nn.Variable.from_numpy_array(x.astype(np.float32), need_grad=True) for x in arrays]
        with nn.auto_forward(how == "at once"):
            y = attention(*xs, array(mask), heads_apart)
            if how == "at once":
                return np.array(y.d), [np.array(g.d) for g in autodiff.grad(y, xs, [gy])]
            y.forward()
            if how == "rule":
                gs = nn.grad([y], xs, grad_outputs=[nn.Variable.from_numpy_array(gy)])
                nn.forward_all(gs)
                return np.array(y.d), [np.array(g.d) for g in gs]
            for x in xs:
                x.grad.zero()
            y.backward(gy)
            return np.array(y.d), [np.array(x.g) for x in xs]

    clean, dirty = run(None), run((NAN, INF)) if not heads_apart else run((1e3, 5.0))
    assert not clean[0][:, 1].any()
    assert not dirty[0][:, 1].any()
    assert np.isfinite(clean[0]).all()
    for a, b in zip(clean[1], dirty[1], strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    assert not dirty[1][0][:, 1].any()


@pytest.mark.parametrize("hidden_by", ["causal", "mask", "both"])
@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (5, 3), (4, 4), (2, 70), (70, 70)])
@pytest.mark.parametrize("how", ["kernel", "rule"])
def test_hidden_rows_of_attention_count_for_nothing_whatever_they_hold(hidden_by, queries, keys, how):
    rng = np.random.RandomState(7)
    causal = hidden_by != "mask"
    mask = np.where(rng.rand(queries, keys) < 0.4, -INF, 0.0) if hidden_by != "causal" else np.zeros((queries, keys))
    mask[:, -1] = -INF if hidden_by != "causal" else 0  # a key that no query sees
    sees = np.isfinite(mask) & (np.tri(queries, keys, dtype=bool) | (not causal))
    sizes = {"q": (queries, 4), "k": (keys, 4), "v": (keys, 3), "gy": (queries, 3)}
    arrays = {name: rng.randn(*size).astype(np.float32) for name, size in sizes.items()}

    def results(**changed):
        """Returns the output and the gradients of query, key and value, with some arrays changed."""
        q, k, v, gy = (changed.get(name, x) for name, x in arrays.items())
        with nn.auto_forward():
            xs = [nn.Variable.from_numpy_array(x, need_grad=True) for x in (q, k, v)]
            y = F.scaled_dot_product_attention(*xs, None if hidden_by == "causal" else array(mask), causal=causal)
            return [y.d, *(g.d for g in autodiff.grad(y, xs, [gy], create_graph=how == "rule"))]

    clean = results()
    for name, x in arrays.items():
        for row, bad in itertools.product({0, len(x) // 2, len(x) - 1}, (NAN, INF)):
            x_bad = x.copy()
            x_bad[row, 1:] = bad
            touched = np.arange(queries) == row if name in ("q", "gy") else sees[:, row]
            of_keys = sees[touched].any(axis=0)
            for found, expected, rows in zip(
                results(**{name: x_bad}), clean, (touched, touched, of_keys, of_keys), strict=True
            ):
                np.testing.assert_allclose(found[~rows], expected[~rows], 1e-4, 1e-5)


CONSTANT_FROM = {
    # NaN is compared, replaced, or not looked at.
    **dict.fromkeys(("isnan", "isinf", "reset_nan", "binary_error", "assign", "where", "flip", "prune"), 0),
    **dict.fromkeys(("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_not"), 0),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), 0),
    **dict.fromkeys(("equal_scalar", "not_equal_scalar", "greater_scalar", "greater_equal_scalar"), 0),
    **dict.fromkeys(("less_scalar", "less_equal_scalar", "logical_and_scalar", "logical_or_scalar"), 0),
    "logical_xor_scalar": 0,
    # A power of 1.
    "r_pow_scalar": 0,
    # Each branch is linear.
    **dict.fromkeys(("identity", "unlink", "add_scalar", "mul_scalar", "r_sub_scalar", "add2", "bc_add2", "sub2"), 1),
    **dict.fromkeys(("add_n", "mul_n", "mod2", "broadcast_to", "concatenate", "pad", "shift", "bool_fill"), 1),
    **dict.fromkeys(("relu", "leaky_relu", "relu6", "hard_sigmoid", "hard_tanh", "abs", "sign", "reset_inf"), 1),
    **dict.fromkeys(("floor", "ceil", "round", "absolute_error", "epsilon_insensitive_loss", "clip_by_value"), 1),
    **dict.fromkeys(("maximum_scalar", "minimum_scalar", "maximum2", "minimum2", "quantize_linear"), 1),
    **dict.fromkeys(("clip_grad_by_value", "clip_grad_by_norm", "dequantize_linear", "binary_tanh"), 1),
    **dict.fromkeys(("binary_sigmoid", "fixed_point_quantize", "pow2_quantize", "mul2", "sigmoid_cross_entropy"), 1),
    **dict.fromkeys(("binary_cross_entropy", "pow_scalar", "div2"), 1),
    # Each branch is a polynomial of degree two.
    **dict.fromkeys(("squared_error", "huber_loss", "hard_swish"), 2),
}
"""The order of the first derivative of some function of the name that is not NaN at NaN: 0 is the value."""


def elementwise():
    """Yields rows of operations whose output has the shape of each input of real numbers, with those inputs."""
    for row in (row for rows in TABLE.values() for row in rows if smooth(row)):
        shapes = {row.inputs[i].shape for i in row.wanted} | {y.shape for y in row.expected}
        if len(row.expected) == 1 and shapes == {(2, 3)} and all(x is not None for x in row.inputs):
            yield from ((row, i) for i in row.wanted)


def test_functions_of_nan_are_nan_up_to_the_second_derivative():
    apart = {}
    for row, i in elementwise():
        arrays = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in row.inputs]
        arrays[i][0, 0] = NAN
        found = []
        with context("double"), nn.auto_forward():
            for create_graph in (False, True):
                xs = [nn.Variable.from_numpy_array(x, need_grad=j in row.wanted) for j, x in enumerate(arrays)]
                (y,) = call(row, xs)
                (g,) = autodiff.grad(y, xs[i], [np.full((2, 3), 1.5)], create_graph=create_graph)
                found += [(0, y), (1, g)]
            for create_graph in (False, True) if row.second and g.need_grad else ():
                (second,) = autodiff.grad(
                    F.sum(g), xs[i], create_graph=create_graph, retain_graph=True, allow_unused=True
                )
                found += [(2, second)] if second is not None else []
        numbers = [order for order, v in found if not np.isnan(v.d[0, 0])]
        for order in numbers:
            apart[row.name] = min(order, apart.get(row.name, order))
    assert apart == CONSTANT_FROM


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "atan", "asinh", "acosh", "softsign"])
def test_second_derivatives_at_the_ends_of_the_domain(name):
    """PyTorch has these second derivatives too, except for `softsign` at zero and `acosh` below -1."""
    at = np.array([-INF, -1e20, -2, -1, 1, 2, 1e20, INF, NAN], np.float32)
    beyond, ends = [NAN] * 3, {"asin": (-INF, INF), "acos": (INF, -INF), "atanh": (-INF, INF)}
    cube, root = 1e20**-2 * 2, 3**-1.5
    expected = {
        "asin": [*beyond, *ends.get(name, ()), *beyond, NAN],
        "acos": [*beyond, *ends.get(name, ()), *beyond, NAN],
        "atanh": [None, None, -4 / 9, *ends.get(name, ()), 4 / 9, None, None, NAN],
        "atan": [0, cube * 0, 4 / 25, 0.5, -0.5, -4 / 25, 0, 0, NAN],
        "asinh": [0, 0, 2 / 5**1.5, 2**-1.5, -(2**-1.5), -2 / 5**1.5, 0, 0, NAN],
        "acosh": [None, None, 2 * root, None, -INF, -2 * root, 0, 0, NAN],
        "softsign": [0, 0, 2 / 27, 0.25, -0.25, -2 / 27, 0, 0, NAN],
    }[name]
    with nn.auto_forward():
        x = nn.Variable.from_numpy_array(at, need_grad=True)
        for create_graph in (False, True):
            (first,) = autodiff.grad(F.sum(getattr(F, name)(x)), x, create_graph=True)
            (second,) = autodiff.grad(F.sum(first), x, create_graph=create_graph)
            for point, a, b in zip(at, second.d.tolist(), expected, strict=True):
                assert b is None or np.isclose(a, b, 1e-5, 1e-30, equal_nan=True), f"{point}: expected {b}, got {a}"


LARGEST_FLOAT = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_gradients_of_running_products_whose_parts_leave_the_range(kind, exclusive, reverse):
    """The gradients are right where they are numbers, and infinite or zero only where they are out of range."""
    huge, tiny = (1e30, 1e-30) if kind == "float" else (1e250, 1e-250)
    cases = (
        (huge, huge, tiny, tiny, 3.0),
        (tiny, tiny, huge, huge, 3.0),
        (huge, tiny, tiny, huge, huge, tiny),
        (2.0, huge, huge, tiny, tiny, 0.0, 5.0),
        (0.0, huge, huge, tiny, tiny),
        (huge, huge, huge, 0.0, tiny, tiny),
    )
    for x in cases:
        exact = [fractions.Fraction(v) for v in np.array(x, KINDS[kind]).tolist()]
        n = len(x)
        for gy in ([1.0] * n, [tiny] * n, [0.0] * (n - 1) + [1.0]):
            weights = [fractions.Fraction(v) for v in np.array(gy, KINDS[kind]).tolist()]
            expected = [fractions.Fraction(0)] * n
            for out in range(n):
                factors = range(out + exclusive, n) if reverse else range(out + 1 - exclusive)
                for i in factors:
                    expected[i] += weights[out] * math.prod(exact[j] for j in factors if j != i)
            arrays = [np.array(x, KINDS[kind]), np.array(gy, KINDS[kind])]
            check_product_gradients(
                kind, arrays, expected, lambda v: F.cumprod(v, axis=-1, exclusive=exclusive, reverse=reverse)
            )
        if not exclusive and not reverse:
            all_others = [math.prod(exact[:i] + exact[i + 1 :]) for i in range(n)]
            for g in (1.0, tiny, huge):
                weight = fractions.Fraction(float(KINDS[kind](g)))
                arrays = [np.array(x, KINDS[kind]), np.array(g, KINDS[kind])]
                check_product_gradients(kind, arrays, [weight * v for v in all_others], F.prod)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("f", [F.prod, F.cumprod])
def test_gradients_of_products_are_those_of_each_line_alone(f, kind, axis):
    """Lines that leave the range, hold zeros or are not finite leave the gradients of the lines beside them alone."""
    rng = np.random.RandomState(3)
    lines = rng.uniform(0.5, 2, (21, 70)) * rng.choice([-1, 1], (21, 70))
    for i, scale in enumerate((1e-2, 1e2, 1e-6, 1e6, 1e-30, 1e30)):
        lines[i] *= scale
        lines[i + 6, ::2] *= scale
        lines[i + 6, 1::2] /= scale
    lines[12, 5], lines[13, [5, 30]], lines[14, [5, 30]] = 0, 0, (0, INF)
    lines[15, 7], lines[16, 69], lines[17, 0] = INF, NAN, -INF
    lines[18, 60:] = 0
    shape, order = {0: ((70, 3, 7), (1, 2, 0)), 1: ((3, 70, 7), (0, 2, 1)), 2: ((3, 7, 70), (0, 1, 2))}[axis]

    def gradient(x, axis, gy):
        """The gradient of the function along an axis."""
        with context(kind), nn.auto_forward(), np.errstate(all="ignore"):
            v = nn.Variable.from_numpy_array(x.astype(KINDS[kind]), need_grad=True)
            y = f(v, axis=axis)
            (g,) = autodiff.grad(y, v, [np.broadcast_to(gy, y.shape).astype(KINDS[kind])])
        return g.d

    for gy in (1.0, 1e-20, 0.0):
        x = np.transpose(lines.reshape(3, 7, 70), np.argsort(order))
        assert x.shape == shape
        together = np.transpose(gradient(x, axis, gy), order).reshape(lines.shape)
        for line, got in zip(lines, together, strict=True):
            np.testing.assert_allclose(got, gradient(line, 0, gy), 1e-5)


@pytest.mark.parametrize("n", [300, 1100, 5000])
def test_gradients_of_long_products_in_float32(n):
    """Partial products may leave the range of float32, and of float64, without an effect on the gradients."""
    rng = np.random.RandomState(n)
    x = rng.randn(20, n).astype(np.float32)
    x[:10] *= np.float32(1.885)  # the mean of the logarithms is about zero

    def before(values, join, none):
        """Joins all values before each element of a row."""
        return np.concatenate([np.full((20, 1), none), join(values, axis=1)[:, :-1]], 1)

    with np.errstate(all="ignore"):
        logs = np.log(np.abs(x.astype(np.float64)))
        others = before(logs, np.cumsum, 0.0) + before(logs[:, ::-1], np.cumsum, 0.0)[:, ::-1]
        signs = before(np.sign(x), np.cumprod, 1.0) * before(np.sign(x)[:, ::-1], np.cumprod, 1.0)[:, ::-1]
        expected = (signs * np.exp(others)).astype(np.float32)
    v = nn.Variable.from_numpy_array(x, need_grad=True)
    y, z = F.prod(v, axis=1), F.cumprod(v, axis=1)
    for out, gy in ((y, np.ones(20)), (z, np.arange(n) == n - 1)):
        out.forward()
        v.grad.zero()
        out.backward(nn.NdArray.from_numpy_array(np.broadcast_to(gy, out.shape).astype(np.float32)))
        np.testing.assert_allclose(v.g, expected, 1e-5, 1e-37)


def check_product_gradients(kind, arrays, expected, f):
    """Compares the gradients of `f` at an array, for a gradient of the output, by kernel and rule, with exact ones."""
    most = fractions.Fraction(float(np.finfo(KINDS[kind]).max))
    wanted = [float(v) if abs(v) <= most else (INF if v > 0 else -INF) for v in expected]
    for shape in ((-1,), (1, -1), (1, 1, -1)):
        for create_graph in (False, True):
            with context(kind), nn.auto_forward():
                x = nn.Variable.from_numpy_array(arrays[0].reshape(shape), need_grad=True)
                y = f(x)
                (g,) = autodiff.grad(y, x, [arrays[1].reshape(y.shape)], create_graph=create_graph)
            least = float(np.finfo(KINDS[kind]).tiny)
            np.testing.assert_allclose(g.d.ravel(), wanted, 1e-5, least, err_msg=f"{arrays}, by rule: {create_graph}")


def test_losses_near_the_largest_number():
    """Losses and their gradients are finite where they are representable."""
    for f, a, b, gy, value, slope in (
        (lambda a, b: F.huber_loss(a, b, 0.25), 3e38, 0.0, 1.0, 1.5e38, 0.5),
        (lambda a, b: F.huber_loss(a, b, 0.25), -3e38, 0.0, 2.0, 1.5e38, -1.0),
        (lambda a, b: F.huber_loss(a, b, 1e-30), 2e38, -1e38, 1.0, 6e8, 2e-30),
        (F.squared_error, 3e38, 0.0, 1e-3, INF, 6e35),
        (F.squared_error, 0.0, 3e38, 1e-30, INF, -6e8),
        (F.squared_error, 1e-30, 0.0, 3e38, 0.0, 6e8),
    ):
        with nn.auto_forward():
            xs = [nn.Variable.from_numpy_array(np.array([v], np.float32), need_grad=True) for v in (a, b)]
            for create_graph in (False, True):
                y = f(*xs)
                g = autodiff.grad(y, xs, [np.array([gy], np.float32)], create_graph=create_graph)
                np.testing.assert_allclose([y.d[0], g[0].d[0], g[1].d[0]], [value, slope, -slope], 1e-5)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_slopes_of_powers_of_subnormal_numbers(kind):
    """The derivative `y x^(y - 1)` by the base is right, although the power alone may overflow."""
    least = 1e-40 if kind == "float" else 1e-310
    points = [(least, least), (least, -least), (3 * least, least), (least, 10 * least), (least, 1.0), (least, 0.0)]
    points += [(least, 0.25), (0.0, 0.0), (0.0, 0.25), (0.0, 2.0), (0.0, -1.0), (2.0, least), (least, 2.0)]
    x, p = np.array(points, KINDS[kind]).T.copy()
    at_zero = {0.0: 0.0, 0.25: INF, 2.0: 0.0, -1.0: -INF}
    with np.errstate(all="ignore"):
        logarithm = np.log(np.abs(p.astype(np.float64))) + (p - 1.0) * np.log(x.astype(np.float64))
        slopes = np.sign(p) * np.exp(logarithm)
        expected = np.array([at_zero[q] if v == 0 else s for v, q, s in zip(x, p.tolist(), slopes, strict=True)])
    with context(kind), nn.auto_forward():
        xs = [nn.Variable.from_numpy_array(v, need_grad=True) for v in (x, p)]
        for create_graph in (False, True):
            (g,) = autodiff.grad(F.pow2(*xs), xs[0], [np.ones_like(x)], create_graph=create_graph)
            np.testing.assert_allclose(g.d, expected.astype(KINDS[kind]), 1e-5, np.finfo(KINDS[kind]).tiny)
