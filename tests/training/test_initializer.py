"""Initial values equal NNabla's for the same generator, compared bit by bit with the values listed here."""

import numpy as np
import pytest
from numpy.random import RandomState

import kinnor as nn
import kinnor.initializer as I
import kinnor.layers as L
from kinnor import random
from kinnor.parameter import get_parameter_or_create


@pytest.mark.parametrize(
    ("initializer", "shape", "expected", "dtype"),
    [
        (
            lambda rng: I.NormalInitializer(0.5, rng),
            (2, 3),
            [0.0926394388, -0.6183936, 0.163001746, 0.498777896, 0.043686457, 0.320334762],
            "float32",
        ),
        (
            lambda rng: I.UniformInitializer((-2, 3), rng),
            (2, 3),
            [-1.17230189, 0.750521839, 2.30435896, 1.08966863, 2.73123193, 0.804289877],
            "float32",
        ),
        (lambda rng: I.UniformIntInitializer((0, 100), rng), (2, 3), [8, 42, 87, 31, 39, 73], "int64"),
        (lambda _: I.RangeInitializer(0.5, 0.25), (2, 3), [0.5, 0.75, 1, 0.5, 0.75, 1], "float64"),
        (lambda _: I.RangeInitializer(), (1, 4), [0, 1, 2, 3], "int64"),
        (lambda _: I.ConstantInitializer(-2), (2, 2), [-2, -2, -2, -2], "float32"),
        (lambda _: I.ConstantInitializer([1, 2]), (2, 2), [1, 2, 1, 2], "float32"),
    ],
)
def test_values(initializer, shape, expected, dtype):
    """Values, shapes and types of each initializer for a fixed seed."""
    values = initializer(RandomState(313))(shape)
    assert values.shape == shape
    assert values.dtype == dtype
    np.testing.assert_array_equal(values.ravel(), np.array(expected, dtype))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 2), [1.07092893, 1.01105177, -0.886354923, 1.08791256, -0.563459098, 0.210286841]),
        ((2, 3), [-0.767912149, 1.09159636, -0.684637427, 0.99751246, 1.00812352, 0.488524228]),
        ((2, 2), [-1.15869236, 0.952592194, 0.952592194, 1.15869236]),
    ],
)
def test_orthogonal_values(shape, expected):
    """The orthogonal initializer returns the written values."""
    values = I.OrthogonalInitializer(1.5, RandomState(313))(shape)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values.ravel(), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(10,), (10, 8), (5, 5), (8, 10), (2, 3, 4, 2)])
def test_orthogonal_is_orthonormal(shape):
    """The rows or columns of the orthogonal initializer are orthonormal."""
    q = I.OrthogonalInitializer(rng=RandomState(0))(shape).reshape(shape[0], -1)
    product = q.T @ q if q.shape[0] > q.shape[1] else q @ q.T
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-6)


@pytest.mark.parametrize(("dim", "expected"), [(0, [2.23606801, 7.07106781]), (1, [3, 4.12310553, 5.38516474])])
def test_weight_normalization_scale(dim, expected):
    """The initializer of the scale returns the norms of the weight along an axis."""
    w = nn.Variable.from_numpy_array(np.arange(6.0).reshape(2, 3))
    for axis in (dim, dim - 2):
        scale = I.WeightNormalizationScaleInitializer(w, axis)(w.shape)
        np.testing.assert_allclose(scale, np.array(expected, np.float32), rtol=1e-7)
    with pytest.raises(ValueError, match="expected as `dim` an axis of"):
        I.WeightNormalizationScaleInitializer(w, 2)(w.shape)


def test_ranges():
    """Standard deviations and limits by fan-in and fan-out, with and without a kernel."""
    assert I.calc_normal_std_he_forward(3, 5, (3, 2)) == 0.3333333333333333
    assert I.calc_normal_std_he_backward(3, 5, (3, 2)) == 0.2581988897471611
    assert I.calc_normal_std_glorot(3, 5, kernel=(3, 2)) == 0.2041241452319315
    assert I.calc_uniform_lim_glorot(3, 5, [3, 2]) == (-0.3535533905932738, 0.3535533905932738)
    assert I.calc_normal_std_he_forward(3, 5) == 0.816496580927726
    assert I.calc_normal_std_he_backward(3, 5) == 0.6324555320336759
    assert I.calc_normal_std_glorot(3, 5) == 0.5
    assert I.calc_uniform_lim_glorot(3, 5) == (-0.8660254037844386, 0.8660254037844386)
    with pytest.raises(ValueError, match="calc_uniform_lim_glorot: expected"):
        I.calc_uniform_lim_glorot(0, 0)
    for maps in (1e-300, 0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="calc_normal_std_he_forward: expected"):
            I.calc_normal_std_he_forward(maps, 3)


def test_the_generator_is_taken_on_construction():
    """An initializer uses the generator that was current when it was made."""
    random.set_parameter_seed(1)
    before = I.NormalInitializer()
    random.set_parameter_seed(2)
    np.testing.assert_array_equal(before((3,)), RandomState(1).randn(3).astype(np.float32))
    assert random.pseed == 2
    assert random.prng.rand() == RandomState(2).rand()


def test_seed_of_both_generators():
    """`nn.seed` sets the generators of parameters and of functions, or one of them."""
    nn.seed(311)
    assert random.pseed == 311
    assert random.prng.rand() == RandomState(311).rand()
    nn.seed(4, set_parameter_seed=False)
    assert random.pseed == 311
    nn.seed(313, set_function_seed=False)
    assert random.pseed == 313


@pytest.mark.parametrize(
    ("value", "error"),
    [(1.5, TypeError), ("1", TypeError), (-1, ValueError), (2**32, ValueError)],
)
def test_bad_seeds_change_nothing(value, error):
    random.set_parameter_seed(5)
    with pytest.raises(error, match="seed: expected"):
        nn.seed(value)
    assert random.pseed == 5


def test_bad_shapes_and_ranges():
    """Initializers refuse shapes without axes and empty ranges."""
    for initializer in (I.RangeInitializer(), I.OrthogonalInitializer()):
        with pytest.raises(ValueError, match="at least one axis"):
            initializer(())
    with pytest.raises(ValueError, match="low >= high"):
        I.UniformIntInitializer((5, 5))((2,))
    with pytest.raises(NotImplementedError, match="__call__"):
        I.BaseInitializer()((2,))


def test_representations():
    """The text of an initializer shows its arguments."""
    shown = [repr(i) for i in (I.NormalInitializer(2.0), I.UniformInitializer(), I.ConstantInitializer(3))]
    assert shown == ["NormalInitializer(2.0)", "UniformInitializer((-1, 1))", "ConstantInitializer(3)"]


def test_skipped_initial_values():
    """In `skip_init`, parameters are zeros without memory, and no random numbers are drawn."""
    nn.seed(1)
    expected = L.Linear(3, 2).W.d
    nn.seed(1)
    before = nn.memory_stats()["live"]
    with nn.initializer.skip_init():
        norm, layer = L.BatchNorm1d(500_000), L.Linear(1000, 1000)
        given = get_parameter_or_create("given", None, np.ones(3))
    assert nn.memory_stats()["live"] - before < 100_000
    assert given.d.tolist() == [1, 1, 1]
    assert [v.need_grad for v in norm.state_dict().values()] == [True, True, False, False]
    np.testing.assert_array_equal(L.Linear(3, 2).W.d, expected)
    assert not layer.b.d.any()
    layer.load_state_dict({"W": np.eye(1000, dtype=np.float16), "b": np.ones(1000, np.float32)})
    y = layer(nn.Variable.from_numpy_array(np.full((1, 1000), 2, np.float32)))
    y.forward()
    assert (y.d == 3).all()
    with pytest.raises(ZeroDivisionError), nn.initializer.skip_init():
        _ = 1 / 0
    assert L.Linear(3, 2).W.d.any()
