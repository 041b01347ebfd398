"""Parametric functions register the same parameters as NNabla's: paths, order, shapes, need_grad, initial values."""

import inspect

import numpy as np
import pytest
from numpy.random import RandomState

import kinnor as nn
import kinnor.functions as F
import kinnor.initializer as I
import kinnor.parametric_functions as PF
from kinnor import random
from kinnor.parameter import get_parameter_or_create
from kinnor.testing import assert_allclose


@pytest.fixture(autouse=True)
def fresh():
    """Clears parameters and seeds their initial values, before and after the test."""
    nn.clear_parameters()
    random.set_parameter_seed(313)
    yield
    nn.clear_parameters()


def image():
    """Returns an empty batch of images."""
    return nn.Variable((2, 6, 4, 4))


def registered():
    """Returns shape and need_grad of all parameters by path."""
    return {key: (v.shape, v.need_grad) for key, v in nn.get_parameters(grad_only=False).items()}


# First values and sum of the weight for NNabla's default generator, `RandomState(313)`.
WEIGHTS = [
    (lambda: PF.affine(image(), 5), "affine/W", (96, 5), [-0.163038284, 0.0244242083, 0.175912976], 1.380640516988933),
    (
        lambda: PF.affine(image(), (2, 3), base_axis=2),
        "affine/W",
        (16, 2, 3),
        [-0.349332482, 0.0523323044, 0.376918316],
        0.1472133956849575,
    ),
    (
        lambda: PF.convolution(image(), 4, (3, 3)),
        "conv/W",
        (4, 6, 3, 3),
        [-0.172714591, 0.025873784, 0.1863534],
        4.320674697402865,
    ),
    (
        lambda: PF.convolution(image(), 4, (3, 3), group=2),
        "conv/W",
        (4, 3, 3, 3),
        [-0.172714591, 0.025873784, 0.1863534],
        1.1226747441105545,
    ),
    (
        lambda: PF.deconvolution(image(), 4, (3, 2), group=2),
        "deconv/W",
        (6, 2, 3, 2),
        [-0.211531311, 0.0316887833, 0.228235364],
        -0.17759695672430098,
    ),
    (
        lambda: PF.depthwise_convolution(image(), (3, 3), multiplier=2),
        "depthwise_conv/W",
        (12, 3, 3),
        [-0.128733858, 0.0192851797, 0.138899624],
        0.836792269255966,
    ),
    (
        lambda: PF.embed(nn.Variable((2, 3)), 7, 4),
        "embed/W",
        (7, 4),
        [-1.15860474, 0.17356661, 1.25009656],
        -1.2262521460652351,
    ),
    (
        lambda: PF.lstm_cell(nn.Variable((2, 3)), nn.Variable((2, 4)), nn.Variable((2, 4)), 4),
        "lstm/affine/W",
        (7, 4, 4),
        [-0.341653883, 0.0511820018, 0.36863336],
        2.0634297118522227,
    ),
]


@pytest.mark.parametrize(("build", "key", "shape", "first", "total"), WEIGHTS)
def test_initial_weights(build, key, shape, first, total):
    """Initial weights equal NNabla's, and biases are zero."""
    build()
    w = nn.get_parameters()[key].d
    assert w.shape == shape
    assert w.dtype == np.float32
    np.testing.assert_array_equal(w.ravel()[:3], np.array(first, np.float32))
    assert w.sum(dtype=np.float64) == pytest.approx(total, rel=1e-12)
    biases = [v for name, v in nn.get_parameters().items() if name.endswith("/b")]
    assert all(not b.d.any() for b in biases)


def test_layers_draw_one_after_the_other():
    """Initial values are drawn in the order in which layers are built."""
    PF.convolution(image(), 4, (3, 3), name="c1")
    PF.affine(image(), 3, name="f")
    assert list(registered()) == ["c1/conv/W", "c1/conv/b", "f/affine/W", "f/affine/b"]
    w = nn.get_parameters()["f/affine/W"].d
    np.testing.assert_array_equal(w.ravel()[:3], np.array([-0.195905551, -0.0266626384, 0.244599164], np.float32))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: PF.affine(x, 5, with_bias=False), {"affine/W": ((96, 5), True)}),
        (
            lambda x: PF.convolution(x, 4, (3, 3)),
            {"conv/W": ((4, 6, 3, 3), True), "conv/b": ((4,), True)},
        ),
        (
            lambda x: PF.batch_normalization(x),
            {
                "bn/beta": ((1, 6, 1, 1), True),
                "bn/gamma": ((1, 6, 1, 1), True),
                "bn/mean": ((1, 6, 1, 1), False),
                "bn/var": ((1, 6, 1, 1), False),
            },
        ),
        (
            lambda x: PF.batch_normalization(x, axes=[1, 2], no_scale=True),
            {"bn/beta": ((1, 6, 4, 1), True), "bn/mean": ((1, 6, 4, 1), False), "bn/var": ((1, 6, 4, 1), False)},
        ),
        (
            lambda x: PF.batch_normalization(x, axes=[-1], no_bias=True, batch_stat=False),
            {"bn/gamma": ((1, 1, 1, 4), True), "bn/mean": ((1, 1, 1, 4), False), "bn/var": ((1, 1, 1, 4), False)},
        ),
        (
            lambda x: PF.layer_normalization(x),
            {
                "layer_normalization/beta": ((1, 6, 4, 4), True),
                "layer_normalization/gamma": ((1, 6, 4, 4), True),
            },
        ),
        (
            lambda x: PF.layer_normalization(x, batch_axis=(0, 1), no_bias=True),
            {"layer_normalization/gamma": ((1, 1, 4, 4), True)},
        ),
        (
            lambda x: PF.instance_normalization(x, channel_axis=-1, batch_axis=[0, 1]),
            {
                "instance_normalization/beta": ((1, 1, 1, 4), True),
                "instance_normalization/gamma": ((1, 1, 1, 4), True),
            },
        ),
        (lambda x: PF.group_normalization(x, 3, no_scale=True), {"group_normalization/beta": ((1, 6, 1, 1), True)}),
        (lambda x: PF.group_normalization(x, 3, no_scale=True, no_bias=True), {}),
        (lambda x: PF.prelu(x), {"prelu/slope": ((), True)}),
        (lambda x: PF.prelu(x, base_axis=2, shared=False), {"prelu/slope": ((4,), True)}),
    ],
)
def test_registered_parameters(build, expected):
    """Each parametric function registers the expected parameters, in order."""
    build(image())
    assert registered() == expected
    assert list(registered()) == list(expected)


def test_initial_values_of_normalizations_and_slopes():
    """Batch normalization and PReLU begin with the expected constants."""
    PF.batch_normalization(image())
    PF.prelu(image())
    values = {key: np.unique(v.d).tolist() for key, v in nn.get_parameters(grad_only=False).items()}
    assert values == {"bn/beta": [0], "bn/gamma": [1], "bn/mean": [0], "bn/var": [1], "prelu/slope": [0.25]}


def test_given_initializers():
    """Initializers may be objects, arrays or functions of the shape."""
    init = {"gamma": I.ConstantInitializer(2), "beta": np.full((1, 6, 1, 1), 3.0), "var": I.ConstantInitializer(4)}
    PF.batch_normalization(image(), param_init=init)
    PF.affine(image(), 5, w_init=lambda shape: np.ones(shape), b_init=I.ConstantInitializer(5))
    values = {key: np.unique(v.d).tolist() for key, v in nn.get_parameters(grad_only=False).items()}
    assert values == {"bn/beta": [3], "bn/gamma": [2], "bn/mean": [0], "bn/var": [4], "affine/W": [1], "affine/b": [5]}


def test_a_given_generator_does_not_advance_the_default_one():
    PF.affine(image(), 5, rng=RandomState(1), name="own")
    PF.affine(image(), 5)
    assert nn.get_parameters()["affine/W"].d.sum(dtype=np.float64) == pytest.approx(1.380640516988933, rel=1e-12)


def test_fixed_parameters_stay_trainable_in_the_tree():
    x = image()
    y = PF.batch_normalization(x, fix_parameters=True)
    assert registered()["bn/beta"][1]
    assert registered()["bn/gamma"][1]
    assert [v.need_grad for v in y.parent.inputs[1:]] == [False] * 4
    z = PF.affine(x, 5, fix_parameters=True)
    assert [v.need_grad for v in z.parent.inputs[1:]] == [False] * 2
    assert [v.name for v in z.parent.inputs[1:]] == ["W", "b"]


def test_applied_functions():
    """`apply_w` and `apply_b` change parameters before they are used."""
    x = nn.Variable((1, 2))
    x.d = [[1, 2]]
    y = PF.affine(x, 1, w_init=np.ones((2, 1)), apply_w=lambda w: w * 3, apply_b=lambda b: b + 10)
    y.forward()
    assert y.d.tolist() == [[19]]
    index = nn.Variable((2,))
    index.d = [1, 0]
    y = PF.embed(index, 2, 1, initializer=np.array([[1.0], [2.0]]), apply_w=lambda w: w * 3)
    y.forward()
    assert y.d.tolist() == [[6], [3]]


def test_arguments_of_the_function():
    """Arguments of a parametric function reach the function that it calls."""
    y = PF.convolution(image(), 4, (3, 3), (1, 1), (2, 2), (1, 1), 2)
    args = y.parent.info.args
    assert y.shape == (2, 4, 2, 2)
    assert {k: list(np.atleast_1d(args[k])) for k in ("base_axis", "pad", "stride", "dilation", "group")} == {
        "base_axis": [1],
        "pad": [1, 1],
        "stride": [2, 2],
        "dilation": [1, 1],
        "group": [2],
    }
    assert PF.deconvolution(image(), 4, (3, 3), stride=(2, 2), output_padding=(1, 1)).shape == (2, 4, 10, 10)
    assert [v.shape for v in PF.batch_normalization(image(), output_stat=True)] == [
        (2, 6, 4, 4),
        (1, 6, 1, 1),
        (1, 6, 1, 1),
    ]


def test_lstm_values():
    """`lstm_cell` and `LSTMCell` return the written values."""
    x, h, c = (nn.Variable((1, 2)) for _ in range(3))
    x.d, h.d, c.d = [[0.5, -1]], [[0.25, 0.75]], [[-0.5, 1.5]]
    w, b = (np.arange(32).reshape(4, 4, 2) - 15) / 16, np.arange(8).reshape(4, 2) / 8
    next_h, next_c = PF.lstm_cell(x, h, c, 2, w_init=w, b_init=b)
    F.sink(next_h, next_c).forward()
    assert_allclose(next_h.d, [[0.1034683, 0.6624408]])
    assert_allclose(next_c.d, [[0.15512723, 1.7260478]])
    cell = PF.LSTMCell(1, 2, h, c, name="cell")
    for _ in range(3):
        y = cell(x, w_init=w, b_init=b)
    y.forward()
    assert y is cell.h
    assert_allclose(y.d, [[0.48641035, 0.6669533]])
    assert list(registered()) == ["lstm/affine/W", "lstm/affine/b", "cell/lstm/affine/W", "cell/lstm/affine/b"]


def test_lstm_state_is_reset_in_place():
    """`LSTMCell.reset_state` zeroes its states and keeps the variables."""
    cell = PF.LSTMCell(2, 3)
    assert not cell.h.need_grad
    assert not cell.h.d.any()
    cell.h.d, cell.c.d = 1, 2
    h, c = cell.h, cell.c
    cell.reset_state()
    assert cell.h is h
    assert cell.c is c
    assert not h.d.any()
    assert not c.d.any()
    with pytest.raises(ValueError, match=r"LSTMCell: expected `h` of shape \(2, 3\), got shape \(3, 2\)"):
        PF.LSTMCell(2, 3, nn.Variable((3, 2)))


def test_functions_of_arrays_run_eagerly():
    """Parametric functions of arrays return arrays."""
    x = nn.NdArray((2, 3))
    x.fill(1)
    y = PF.affine(x, 2, w_init=np.ones((3, 2)))
    assert isinstance(y, nn.NdArray)
    assert y.data.tolist() == [[3, 3], [3, 3]]
    assert isinstance(PF.batch_normalization(nn.NdArray((2, 3, 4, 5))), nn.NdArray)


@PF.parametric_function_api("dummy", [("p1", "A vector", "shape", True)])
def dummy(shape, f=10, i=1, s="dummy", fix_parameters=False):
    """Doc"""
    get_parameter_or_create("p1", shape, I.UniformInitializer((-1, 1)), as_need_grad=not fix_parameters)
    get_parameter_or_create("p2", (*shape, 1), I.UniformInitializer((-1, 1)))
    return (f, i, s)


def test_own_parametric_functions():
    """A decorated function of a user gets a scope, an argument `name`, and documentation."""
    spec = inspect.getfullargspec(dummy)
    assert spec.args == ["shape", "f", "i", "s", "fix_parameters", "name"]
    assert spec.defaults == (10, 1, "dummy", False, None)
    assert dummy.__name__ == "dummy"
    assert dummy.__doc__.splitlines()[0] == "Doc"
    assert "dummy/p1: A vector, shape shape." in dummy.__doc__
    dummy((2, 3), name="group1")
    with nn.parameter_scope("group1"):
        dummy((2, 3))
    assert list(registered()) == ["group1/dummy/p1", "group1/dummy/p2"]
    assert dummy((2, 3), 1, 2, "3", False, "group2") == (1, 2, "3")
    dummy((2, 3))
    assert list(registered())[2:] == ["group2/dummy/p1", "group2/dummy/p2", "dummy/p1", "dummy/p2"]


def test_own_parametric_functions_may_declare_the_name_and_leave_out_the_scope():
    @PF.parametric_function_api()
    def block(x, fix_parameters=False, name=None):
        """A parametric function without a scope argument."""
        return PF.affine(x, 3, fix_parameters=fix_parameters)

    assert list(inspect.signature(block).parameters) == ["x", "fix_parameters", "name"]
    block(image(), False, "outer")
    assert list(registered()) == ["outer/block/affine/W", "outer/block/affine/b"]


def test_own_parametric_functions_that_do_not_fit():
    """Functions with unsuitable signatures are refused by the decorator."""
    with pytest.raises(TypeError, match="to take `fix_parameters`"):
        PF.parametric_function_api("f")(lambda x: x)
    with pytest.raises(TypeError, match="to take plain arguments"):
        PF.parametric_function_api("f")(lambda x, *, fix_parameters=False: x)
    with pytest.raises(TypeError, match="to take plain arguments"):
        PF.parametric_function_api("f")(lambda x, name=None, fix_parameters=False: x)


def test_a_refused_call_registers_nothing():
    """A call with wrong arguments registers no parameter."""
    x = image()
    bad = [
        lambda: PF.affine(x, 0),
        lambda: PF.affine(x, "3"),
        lambda: PF.affine(x, 3, base_axis=4),
        lambda: PF.affine(np.ones((2, 3)), 3),
        lambda: PF.affine(None, 3),
        lambda: PF.affine(x, 3, name=4),
        lambda: PF.affine(x, 3, b_init=3),
        lambda: PF.affine(x, 3, b_init=np.zeros(4)),
        lambda: PF.affine(x, 3, apply_b=lambda b: 1 / 0),
        lambda: PF.affine(x, 3, 1, None, None, False, None, True, None, None, "n", 1),
        lambda: PF.convolution(x, 4, 9),
        lambda: PF.convolution(x, 4, (3,)),
        lambda: PF.convolution(x, 4, (9, 9)),
        lambda: PF.convolution(x, 4, (3, 3), group=4),
        lambda: PF.convolution(nn.Variable(()), 4, (3, 3)),
        lambda: PF.deconvolution(x, 5, (3, 3), group=2),
        lambda: PF.depthwise_convolution(x, (3, 3), multiplier=0),
        lambda: PF.batch_normalization(x, axes=[4]),
        lambda: PF.batch_normalization(x, axes=["1"]),
        lambda: PF.batch_normalization(x, param_init={"gama": I.ConstantInitializer(1)}),
        lambda: PF.layer_normalization(x, batch_axis=7),
        lambda: PF.group_normalization(x, 4),
        lambda: PF.embed(x, 0, 3),
        lambda: PF.prelu(x, base_axis=9, shared=False),
        lambda: PF.lstm_cell(x, x, x, 3),
    ]
    for call in bad:
        with pytest.raises((TypeError, ValueError, IndexError, RuntimeError, ZeroDivisionError)):
            call()
        assert registered() == {}


def test_a_refused_call_keeps_existing_parameters():
    """A call that fails leaves parameters registered before it."""
    PF.affine(image(), 3)
    told = r"expected the shape \(96, 3\) of the existing parameter 'affine/W', got \(96, 4\)"
    with pytest.raises(ValueError, match=told):
        PF.affine(image(), 4)
    with pytest.raises(ZeroDivisionError):
        PF.affine(image(), 3, apply_b=lambda b: 1 / 0)
    assert registered() == {"affine/W": ((96, 3), True), "affine/b": ((3,), True)}


def test_a_failing_outer_function_removes_inner_parameters():
    @PF.parametric_function_api("outer")
    def outer(x, fix_parameters=False):
        """A parametric function whose second layer fails."""
        y = PF.affine(x, 3)
        PF.affine(y, 0, name="second")

    with pytest.raises(ValueError, match="n_outmaps"):
        outer(image())
    assert registered() == {}


def test_documented():
    """Each parametric function documents all its arguments."""
    for name in PF.__all__:
        function = getattr(PF, name)
        doc = inspect.getdoc(function)
        signature = inspect.signature(function)
        missing = [a for a in signature.parameters if f"    {a}:" not in doc]
        assert not missing, f"{name}: {missing}"
