"""Properties of all functions, and the forms of functions composed in Python."""

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for name in F.__all__ if name != "PythonFunction"]
"""Names of all functions."""


@pytest.mark.parametrize("name", NAMES)
def test_a_function_knows_its_signature_documentation_and_name(name):
    function = getattr(F, name)
    assert inspect.signature(function).parameters or name in ("add_n",)
    assert inspect.getdoc(function)
    assert (function.__module__, function.__name__, function.__qualname__) == ("kinnor.functions", name, name)
    assert pickle.loads(pickle.dumps(function)) is function


def test_all_declared_functions_exist():
    """Each declared operation is a public function."""
    declared = {row[0] for row in _core.declarations()}
    assert declared <= set(NAMES)


def test_the_stub_is_up_to_date():
    """`tools/make-stubs --check` finds the generated stubs unchanged."""
    run = subprocess.run([sys.executable, ROOT / "tools/make-stubs", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def arguments(y):
    """Returns the arguments of the function that computed `y`, as the graph stores them."""
    return (y[0] if isinstance(y, tuple) else y).parent.info.args


def v(*shape):
    """Returns an empty variable of this shape."""
    return nn.Variable(shape)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (lambda: F.convolution(v(2, 3, 8, 8), v(4, 3, 3, 3)), {"pad": [0, 0], "stride": [1, 1], "dilation": [1, 1]}),
        (lambda: F.convolution(v(3, 8), v(4, 3, 3), base_axis=0), {"pad": [0], "stride": [1], "dilation": [1]}),
        (lambda: F.convolution(v(2, 3, 8, 8), v(4, 3, 3, 3), stride=(2, 1)), {"pad": [0, 0], "stride": [2, 1]}),
        (lambda: F.deconvolution(v(2, 3, 8, 8), v(3, 4, 3, 3)), {"output_padding": [0, 0], "stride": [1, 1]}),
        (lambda: F.depthwise_convolution(v(2, 3, 8, 8), v(3, 3, 3)), {"pad": [0, 0], "dilation": [1, 1]}),
        (lambda: F.max_pooling(v(1, 1, 4, 4), (2, 2)), {"stride": [2, 2], "pad": [0, 0]}),
        (lambda: F.sum(v(2, 3)), {"axes": [0, 1], "keep_dims": False}),
        (lambda: F.max(v(2, 3), with_index=True), {"axes": [0, 1]}),
        (lambda: F.norm(v(2, 3), axis=1), {"p": 2.0, "axes": [1]}),
        (lambda: F.softmax(v(2, 3)), {"axis": 1}),
        (lambda: F.softmax_cross_entropy(v(2, 3), v(2, 1)), {"axis": 1}),
        (lambda: F.flip(v(2, 3)), {"axes": [1]}),
        (lambda: F.shift(v(2, 3)), {"shifts": [0, 0]}),
        (lambda: F.slice(v(2, 3)), {"start": [0, 0], "stop": [2, 3], "step": [1, 1]}),
        (
            lambda: F.slice(v(2, 3), (None, 1), (1, None), (None, -1)),
            {"start": [0, 1], "stop": [1, -4], "step": [1, -1]},
        ),
        (lambda: F.scatter_add(v(3), v(2), v(2)), {"axis": 0}),
        (lambda: F.scatter_nd(v(2), [[0, 2]], shape=(4,)), {"shape": [4], "add": False}),
        (lambda: F.scatter_nd(v(2), [[0, 2]], out=v(5)), {"shape": [5]}),
        (lambda: F.layer_normalization(v(2, 3), None, v(1, 3)), {"no_bias": True, "no_scale": False}),
    ],
)
def test_arguments_that_were_left_open_are_filled_in(y, expected):
    found = arguments(y())
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("bounds", "key"),
    [
        (((1, 0), (3, 2), (1, 1)), np.s_[1:3, 0:2]),
        (((None, 1), (-1, None), None), np.s_[:-1, 1:]),
        ((None, None, (None, 2)), np.s_[:, ::2]),
        ((None, None, (-1, -2)), np.s_[::-1, ::-2]),
        (((3, None), (None, 0), (-2, -1)), np.s_[3::-2, :0:-1]),
        ((None, (2, None)), np.s_[:2]),
        ((np.array([1, 1]), [2, 2]), np.s_[1:2, 1:2]),
    ],
)
@pytest.mark.parametrize("kind", [nn.NdArray, nn.Variable])
def test_slice_takes_open_ends_axis_by_axis(bounds, key, kind):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with nn.auto_forward():
        y = F.slice(kind.from_numpy_array(x), *bounds)
    np.testing.assert_array_equal(np.asarray(y), x[key], strict=True)


@pytest.mark.parametrize(
    ("bounds", "key"),
    [(((1,), (3,)), np.s_[..., 1:3]), ((1,), np.s_[..., 1:]), (((1, 0), 2, (1, -1)), np.s_[:, 1:, 0:2:-1])],
)
def test_slice_of_fewer_entries_is_along_the_last_axes(bounds, key):
    x = nn.Variable.from_numpy_array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    y = F.slice(x, *bounds)
    y.forward()
    np.testing.assert_array_equal(y.d, x.d[key], strict=True)


@pytest.mark.parametrize("bounds", [((0, 0, 0), None), (None, None, (1, 0))])
def test_slice_refuses_wrong_bounds(bounds):
    """Bounds of a wrong number or value are refused."""
    with pytest.raises(nn.ArgumentError, match=r"slice: expected .*"):
        F.slice(nn.Variable((4, 3)), *bounds)


@pytest.mark.parametrize("bounds", [("a",), (0.5,), (None, ["a", None]), (None, None, [0.5, 1])])
def test_slice_refuses_arguments_that_are_not_integers(bounds):
    with pytest.raises(TypeError, match="slice: expected `"):
        F.slice(nn.Variable((4, 3)), *bounds)


def test_slice_of_one_axis_takes_integers():
    """For one axis, the bounds of `slice` may be integers."""
    y = F.slice(nn.NdArray.from_numpy_array(np.arange(5.0)), 1, 4, 2)
    assert y.data.tolist() == [1.0, 3.0]


def test_scatter_nd_wants_a_shape_or_an_array():
    data = nn.NdArray.from_numpy_array(np.array([1.0, 2.0], np.float32))
    assert F.scatter_nd(data, [[2, 0]], shape=(3,)).data.tolist() == [2.0, 0.0, 1.0]
    out = nn.NdArray.from_numpy_array(np.full(3, 5.0, np.float32))
    F.scatter_nd(data, np.array([[2, 0]]), out=out, add=True)
    assert out.data.tolist() == [7.0, 5.0, 6.0]
    for arguments in ({}, {"shape": (3,), "out": out}, {"out": np.zeros(3)}):
        with pytest.raises(TypeError):
            F.scatter_nd(data, [[2, 0]], **arguments)


def test_gather_nd_takes_plain_indices():
    """`gather_nd` accepts a list of indices."""
    x = nn.NdArray.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert F.gather_nd(x, [[1, 0], [2, 1]]).data.tolist() == [5.0, 1.0]


def test_tensor_normalization_takes_axes_first():
    """The second positional argument of `tensor_normalization` is `axes`, as in NNabla."""
    x = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
    beta, gamma = (np.full((1, 3, 1), value, np.float32) for value in (0.5, 2.0))
    y, mean, variance = F.tensor_normalization(
        *[nn.NdArray.from_numpy_array(x), 1], *map(nn.NdArray.from_numpy_array, (beta, gamma)), output_stat=True
    )
    m, s = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    np.testing.assert_allclose(y.data, (x - m) / np.sqrt(s + 1e-5) * gamma + beta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean.data, m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance.data, s, rtol=1e-5)


def test_running_statistics_must_be_leaves_where_they_are_overwritten():
    x, statistic = nn.Variable((4, 3, 2)), nn.Variable((1, 3, 1))
    computed = F.identity(statistic)
    with pytest.raises(ValueError, match=r"expected `mean` not to be computed"):
        F.batch_normalization(x, None, None, computed, statistic)
    with pytest.raises(ValueError, match=r"expected `variance` not to be computed"):
        F.batch_normalization(x, None, None, statistic, computed)
    assert F.batch_normalization(x, None, None, computed, computed, batch_stat=False).shape == x.shape


def test_running_statistics_must_be_given_where_they_are_used():
    with pytest.raises(ValueError, match="mean"):
        F.batch_normalization(nn.Variable((4, 3)), batch_stat=False)


def test_batch_normalization_returns_statistics_on_request():
    """`output_stat` or `n_outputs=3` also returns mean and variance."""
    x = nn.Variable((4, 3))
    assert isinstance(F.batch_normalization(x), nn.Variable)
    for request in ({"output_stat": True}, {"n_outputs": 3}):
        assert [y.shape for y in F.batch_normalization(x, **request)] == [(4, 3), (1, 3), (1, 3)]


@pytest.mark.parametrize("number", [0, 1, 5])
def test_linspace_and_arange_count(number):
    """`linspace` and `arange` accept each type of number and match NumPy."""
    with nn.auto_forward():
        np.testing.assert_allclose(F.linspace(1, 3, number).d, np.linspace(1, 3, number), rtol=1e-6)
        np.testing.assert_allclose(F.arange(0, number, 0.5).d, np.arange(0, number, 0.5))


@pytest.mark.parametrize(
    "call", [lambda: F.linspace(0, 1, 2.5), lambda: F.linspace(0, 1, "3"), lambda: F.arange("a", 1)]
)
def test_linspace_and_arange_refuse_other_types(call):
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize("call", [lambda: F.linspace(0, 1, -1), lambda: F.arange(0, 1, 0)])
def test_linspace_and_arange_refuse_numbers_out_of_range(call):
    with pytest.raises(ValueError, match=r"(linspace|arange): expected .*, got"):
        call()


def test_clipping_takes_numbers_and_arrays():
    """Bounds of clipping may be numbers or arrays; wrong bounds are refused."""
    x = nn.NdArray.from_numpy_array(np.array([-3.0, 0.0, 4.0], np.float32))
    one = nn.NdArray.from_numpy_array(np.ones(3, np.float32))
    assert F.clip_by_value(x, -1, one).data.tolist() == [-1.0, 0.0, 1.0]
    np.testing.assert_allclose(F.clip_by_norm(x, 1.0).data, [-0.6, 0.0, 0.8], rtol=1e-6)
    np.testing.assert_allclose(F.clip_by_norm(x, 9).data, [-3.0, 0.0, 4.0], rtol=1e-6)
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="clip_norm"):
            F.clip_by_norm(x, wrong)
    with pytest.raises(TypeError):
        F.clip_by_norm(x, "1")
    with pytest.raises(TypeError):
        F.clip_by_value(x, None, 1)


@pytest.mark.parametrize("limit", [0.5, nn.Variable.from_numpy_array(np.full((3, 1), 0.5, np.float32))])
def test_gradients_of_clipping_do_not_visit_the_comparison(limit):
    """Backward skips the norm that only decides if clipping applies."""
    x = nn.Variable.from_numpy_array(np.arange(1, 13, dtype=np.float32).reshape(3, 4), need_grad=True)
    y = F.clip_by_norm(x, limit, axis=1)
    y.forward()
    visited = []
    y.backward(function_pre_hook=lambda f: visited.append(f.name))
    assert "NormNormalization" in visited
    assert "Norm" not in visited


def test_dot_matches_numpy():
    """`dot` equals `numpy.dot`, writes to `out`, and refuses shapes that do not fit."""
    rng = np.random.default_rng(0)
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((), (2,))):
        a, b = (rng.normal(size=shape).astype(np.float32) for shape in (a, b))
        y = F.dot(nn.NdArray.from_numpy_array(a), nn.NdArray.from_numpy_array(b))
        np.testing.assert_allclose(y.data, np.dot(a, b), rtol=1e-5, atol=1e-6)
        out = nn.NdArray(y.shape)
        assert F.dot(nn.NdArray.from_numpy_array(a), nn.NdArray.from_numpy_array(b), out=out) is out
        np.testing.assert_array_equal(out.data, y.data)
    with pytest.raises(nn.ShapeError):
        F.dot(nn.NdArray(2, 3), nn.NdArray(2, 3))
    with pytest.raises(ValueError, match="expected `out` to be"):
        F.dot(nn.NdArray(2, 3), nn.NdArray(3, 2), out=nn.NdArray(3))
    number = F.dot(np.float32(2), np.float32(3))
    assert F.dot(np.float32(2), np.float32(3), number) == number == 6


def test_convolution_algorithms_agree_and_the_setting_is_checked():
    rng = np.random.default_rng(0)
    x = nn.NdArray.from_numpy_array(rng.normal(size=(3, 32, 13, 10)).astype(np.float32))
    w = nn.NdArray.from_numpy_array(rng.normal(size=(24, 32, 3, 3)).astype(np.float32))
    assert nn.get_conv_algorithm() == "auto"
    results = {}
    try:
        for name in ("direct", "winograd", "auto"):
            nn.set_conv_algorithm(name)
            assert nn.get_conv_algorithm() == name
            results[name] = F.convolution(x, w, pad=(1, 1)).data.copy()
        with pytest.raises(ValueError, match="set_conv_algorithm: expected `name` to be 'auto', 'direct'"):
            nn.set_conv_algorithm("fast")
    finally:
        nn.set_conv_algorithm("auto")
    np.testing.assert_array_equal(results["auto"], results["winograd"])
    assert not np.array_equal(results["direct"], results["winograd"])
    np.testing.assert_allclose(results["direct"], results["winograd"], atol=1e-4 * results["direct"].std())


def test_threads_are_set_and_change_no_number():
    before = nn.get_num_threads()
    x = nn.NdArray.from_numpy_array(np.random.default_rng(0).normal(size=100_000).astype(np.float32))
    try:
        results = []
        for n in (1, 2, 3):
            nn.set_num_threads(n)
            assert nn.get_num_threads() == n
            results.append(F.sum(x).item())
        assert len(set(results)) == 1
        with pytest.raises(ValueError, match="set_num_threads"):
            nn.set_num_threads(0)
    finally:
        nn.set_num_threads(before)


def test_the_configuration_is_shown(capsys):
    """`show_config` prints version, instruction set, threads and memory."""
    nn.show_config()
    shown = capsys.readouterr().out
    for fact in ("kinnor", nn.__version__, "instructions", "threads", "memory", "bfloat16"):
        assert fact in shown


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"axis": 3}, nn.AxisError, "axis"),
        ({"axis": 0}, nn.ArgumentError, "an axis before axis 0, got 0"),
        ({"start": [0]}, nn.ArgumentError, "2 positions, one for each input"),
        ({"stop": [2, 5]}, nn.ArgumentError, "a part within 0 to 4 of input 1, got 1 to 5"),
        ({"start": [-1, 1]}, nn.ArgumentError, "a part within 0 to 3 of input 0, got -1 to 2"),
        ({"start": [1, 1]}, nn.ShapeError, "parts of one length along axis 0"),
        ({"axis": 2}, nn.ShapeError, "shapes that differ along axes 0 and 2 alone"),
    ],
)
def test_parts_that_cannot_be_joined(given, error, told):
    """`concatenate_parts` refuses axes and ranges that do not fit the inputs."""
    args = {"axis": 1, "along": 0, "start": [0, 1], "stop": [2, 3], **given}
    with pytest.raises(error, match=told):
        F.concatenate_parts(nn.Variable((3, 1, 2)), nn.Variable((4, 5, 2)), **args)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by Linux")
def test_surplus_threads_end():
    """Lowering the number of threads ends the threads of the pool that are not needed."""
    before = nn.get_num_threads()

    def threads():
        """Returns the number of threads of the process."""
        return len(list(Path("/proc/self/task").iterdir()))

    x = nn.Variable.from_numpy_array(np.ones((400, 1000), np.float32))
    try:
        nn.set_num_threads(1)
        alone = threads()
        for many, few in ((20, 2), (100, 1), (3, 2), (50, 49)):
            for n in (many, few):
                nn.set_num_threads(n)
                for _ in range(3):
                    y = F.sum(F.exp(x))
                    y.forward()
                    np.testing.assert_allclose(y.d, np.e * x.size, 1e-5)
                assert threads() <= alone + n - 1
        nn.set_num_threads(1)
        assert threads() <= alone
    finally:
        nn.set_num_threads(before)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (1, 2), -1])
@pytest.mark.parametrize("is_number", [True, False])
def test_clip_by_norm_follows_a_changed_shape(axis, is_number):
    """A static graph is built for one shape of the input and then run for another one."""
    rng = np.random.RandomState(0)
    x = nn.Variable.from_numpy_array(rng.randn(2, 8, 8))
    limit = 1.5 if is_number else nn.Variable.from_numpy_array(np.full((1, 1, 1), 1.5))
    y = F.clip_by_norm(x, limit, axis)
    y.forward()
    values = rng.randn(2, 6, 5)
    x.reset_shape(values.shape, True)
    x.d = values
    y.forward()
    norm = np.sqrt((values**2).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(y.d, np.where(norm <= 1.5, values, 1.5 * values / norm), rtol=1e-5)
