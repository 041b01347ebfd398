"""Layers as objects: the numbers of the parametric functions, modes, errors about inputs, and files."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.onnx
import kinnor.parametric_functions as PF
from kinnor import autodiff


@pytest.fixture(autouse=True)
def dynamic():
    """Runs the test in dynamic mode."""
    with nn.auto_forward():
        yield


def values(*shape):
    """Returns a variable of random values."""
    return nn.Variable.from_numpy_array(np.random.RandomState(5).normal(size=shape).astype(np.float32))


def rnn_state(layer, x, layers, directions, hidden):
    """Returns zero states in the order of axes of parametric functions."""
    return nn.Variable.from_numpy_array(np.zeros((layers, directions, x.shape[1], hidden), np.float32))


CASES = {
    "linear": (lambda: L.Linear(3, 4), lambda x: PF.affine(x, 4, base_axis=2), (2, 5, 3)),
    "no bias": (lambda: L.Linear(3, 4, bias=False), lambda x: PF.affine(x, 4, with_bias=False), (2, 3)),
    "conv1d": (lambda: L.Conv1d(4, 6, 3, groups=2), lambda x: PF.convolution(x, 6, (3,), group=2), (2, 4, 8)),
    "conv2d": (
        lambda: L.Conv2d(3, 4, 3, stride=2, padding=1),
        lambda x: PF.convolution(x, 4, (3, 3), pad=(1, 1), stride=(2, 2)),
        (2, 3, 8, 8),
    ),
    "same": (
        lambda: L.Conv2d(3, 4, (3, 5), padding="same", dilation=2),
        lambda x: PF.convolution(x, 4, (3, 5), pad=(2, 4), dilation=(2, 2)),
        (2, 3, 8, 8),
    ),
    "conv3d": (lambda: L.Conv3d(2, 3, 2), lambda x: PF.convolution(x, 3, (2, 2, 2)), (1, 2, 4, 4, 4)),
    "transposed": (
        lambda: L.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1),
        lambda x: PF.deconvolution(x, 4, (3, 3), stride=(2, 2), output_padding=(1, 1)),
        (2, 3, 4, 4),
    ),
    "batch norm": (lambda: L.BatchNorm2d(3), lambda x: PF.batch_normalization(x), (4, 3, 2, 2)),
    "batch norm of vectors": (lambda: L.BatchNorm1d(3), lambda x: PF.batch_normalization(x), (4, 3)),
    "batch norm of any": (lambda: L.BatchNorm(3), lambda x: PF.batch_normalization(x), (4, 3, 2, 2, 2)),
    "no shift": (
        lambda: L.BatchNorm1d(3, affine=False),
        lambda x: PF.batch_normalization(x, no_scale=True, no_bias=True),
        (4, 3, 5),
    ),
    "layer norm": (lambda: L.LayerNorm(6), lambda x: PF.layer_normalization(x, batch_axis=(0, 1)), (2, 3, 6)),
    "layer norm of axes": (lambda: L.LayerNorm((3, 6)), lambda x: PF.layer_normalization(x), (2, 3, 6)),
    "group norm": (lambda: L.GroupNorm(2, 4), lambda x: PF.group_normalization(x, 2), (2, 4, 3, 3)),
    "prelu": (lambda: L.PReLU(3), lambda x: PF.prelu(x, shared=False), (2, 3, 4)),
    "shared prelu": (lambda: L.PReLU(), lambda x: PF.prelu(x), (2, 3, 4)),
}
"""By name: makes a layer object, the parametric function that must agree with it, and shape of the input."""


@pytest.mark.parametrize("name", CASES)
def test_layers_compute_as_parametric_functions(name):
    """Each layer class gives the values and parameters of its parametric function."""
    make, function, shape = CASES[name]
    x = values(*shape)
    nn.seed(3)
    layer = make()
    nn.seed(3)
    expected = function(x)
    y = layer(x)
    np.testing.assert_allclose(y.d, expected.d, rtol=1e-6, atol=1e-6)
    registered = nn.get_parameters(grad_only=False)
    assert [key.rpartition("/")[2] for key in registered] == list(layer.state_dict())
    for theirs, own in zip(registered.values(), layer.state_dict().values(), strict=True):
        np.testing.assert_array_equal(own.d.ravel(), theirs.d.ravel())
    assert repr(layer).splitlines()[-1].endswith("parameters" if len(registered) != 1 else "parameter")


@pytest.mark.parametrize("axes", [(6,), (3, 6)])
def test_rms_norm_divides_by_the_root_mean_square(axes):
    """`RMSNorm` equals its formula, and has gradients."""
    x, layer = values(2, 3, 6), L.RMSNorm(axes, eps=0.1)
    layer.gamma.d = np.random.RandomState(1).normal(size=axes)
    square = np.mean(x.d.astype(np.float64) ** 2, axis=tuple(range(3 - len(axes), 3)), keepdims=True)
    np.testing.assert_allclose(layer(x).d, layer.gamma.d * x.d / np.sqrt(square + 0.1), rtol=1e-6)
    np.testing.assert_allclose(L.RMSNorm(axes, 0.1, affine=False)(x).d, x.d / np.sqrt(square + 0.1), rtol=1e-6)
    assert [*layer.state_dict()] == ["gamma"]
    assert autodiff.gradcheck(layer, (nn.Variable.from_numpy_array(x.d.astype(np.float64), need_grad=True),))
    with pytest.raises(nn.ShapeError, match=r"RMSNorm: .* last axes have the sizes .*, got shape \(5,\)"):
        layer(nn.Variable((5,)))


def test_embeddings_compute_as_embed():
    """`Embedding` equals the parametric function `embed`."""
    x = nn.Variable.from_numpy_array(np.array([[0, 6, 2]]))
    nn.seed(3)
    layer = L.Embedding(7, 4)
    nn.seed(3)
    np.testing.assert_array_equal(layer(x).d, PF.embed(x, 7, 4).d)


@pytest.mark.parametrize("cls", [L.LSTM, L.GRU])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_recurrent_layers_compute_as_parametric_functions(cls, layers, bidirectional):
    """`LSTM` and `GRU` equal the parametric functions, with their states."""
    x, directions = values(5, 2, 3), 2 if bidirectional else 1
    nn.seed(3)
    layer = cls(3, 4, num_layers=layers, bidirectional=bidirectional)
    nn.seed(3)
    states = [rnn_state(layer, x, layers, directions, 4) for _ in range(2 if cls is L.LSTM else 1)]
    function = PF.lstm if cls is L.LSTM else PF.gru
    expected, *last = function(x, *states, num_layers=layers, bidirectional=bidirectional)
    y, state = layer(x)
    np.testing.assert_allclose(y.d, expected.d, rtol=1e-6)
    found = state if cls is L.LSTM else (state,)
    for own, theirs in zip(found, last, strict=True):
        np.testing.assert_allclose(own.d.ravel(), theirs.d.ravel(), rtol=1e-6)
    again, _ = layer(x, state)
    assert again.shape == y.shape
    layer.batch_first = True
    np.testing.assert_allclose(layer(F.transpose(x, (1, 0, 2)))[0].d, y.d.transpose(1, 0, 2), rtol=1e-6)


def test_attention_computes_as_parametric_function():
    """`MultiHeadAttention` equals the parametric function."""
    q, k = values(5, 2, 8), values(6, 2, 8)
    nn.seed(3)
    layer = L.MultiHeadAttention(8, 2)
    nn.seed(3)
    expected, weights = PF.multi_head_attention(q, k, k, num_heads=2)
    y, own = layer(q, k)
    np.testing.assert_allclose(y.d, expected.d, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own.d, weights.d, rtol=1e-5)
    assert list(layer.state_dict()) == [name.rpartition("/")[2] for name in nn.get_parameters()]
    assert layer(q, need_weights=False)[1] is None


def test_causal_attention_does_not_see_later_steps():
    layer = L.MultiheadAttention(8, 2, batch_first=True, bias=False)
    a = values(1, 6, 8)
    b = nn.Variable.from_numpy_array(a.d.copy())
    b.d[0, 5] += 10
    one, other = (layer(x, causal=True)[0].d[0] for x in (a, b))
    np.testing.assert_array_equal(one[:5], other[:5])
    assert np.abs(one[5] - other[5]).max() > 0.01
    with pytest.raises(TypeError, match="`causal` or `additive_mask`, got both"):
        layer(a, causal=True, additive_mask=nn.Variable((6, 6)))


ACTIVATIONS = {
    L.ELU: F.elu, L.GELU: F.gelu, L.HardSigmoid: F.hard_sigmoid, L.HardSwish: F.hard_swish, L.LeakyReLU: F.leaky_relu,
    L.LogSoftmax: F.log_softmax, L.Mish: F.mish, L.ReLU: F.relu, L.ReLU6: F.relu6, L.SELU: F.selu, L.SiLU: F.swish,
    L.Sigmoid: F.sigmoid, L.Softmax: F.softmax, L.Softplus: F.softplus, L.Tanh: F.tanh,
}  # fmt: skip
"""The function that each activation layer applies."""


@pytest.mark.parametrize("cls", ACTIVATIONS)
def test_activations_are_the_functions(cls):
    """Activation layers equal the functions, and have no parameters."""
    x = values(3, 4)
    np.testing.assert_array_equal(cls()(x).d, ACTIVATIONS[cls](x).d)
    assert list(cls().state_dict()) == []


def test_pooling_and_shapes():
    """Pooling and reshaping layers equal the functions."""
    x = values(2, 3, 8, 8)
    np.testing.assert_array_equal(L.MaxPool2d(2)(x).d, F.max_pooling(x, (2, 2)).d)
    np.testing.assert_array_equal(L.MaxPool2d(3, 2, 1)(x).d, F.max_pooling(x, (3, 3), (2, 2), pad=(1, 1)).d)
    np.testing.assert_array_equal(L.AvgPool2d((2, 4))(x).d, F.average_pooling(x, (2, 4)).d)
    np.testing.assert_allclose(L.GlobalAvgPool()(x).d, x.d.mean((2, 3)), rtol=1e-5, atol=1e-6)
    assert L.Flatten()(x).shape == (2, 192)
    assert L.Flatten(2)(x).shape == (2, 3, 64)
    with pytest.raises(nn.ShapeError, match=r"MaxPool2d: expected an input of 4 axes, got shape \(2, 3\)"):
        L.MaxPool2d(2)(values(2, 3))


def test_dropout_and_batch_normalization_follow_the_mode():
    network = L.Sequential(L.BatchNorm1d(3), L.Dropout(0.5))
    x = values(8, 3)
    assert (network(x).d == 0).any()
    mean = network[0].mean.d.copy()
    assert mean.any(), "a training step moves the running mean"
    network.eval()
    y = network(x).d
    np.testing.assert_array_equal(network[0].mean.d, mean)
    var = network[0].var.d.reshape(3)
    np.testing.assert_allclose(y, (x.d - mean.reshape(3)) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="expected `p` from 0"):
        L.Dropout(1.0)


def test_dropout_between_recurrent_layers_is_for_training_only():
    layer, x = L.LSTM(3, 4, num_layers=2, dropout=0.5), values(5, 2, 3)
    assert (layer(x)[0].d != layer(x)[0].d).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].d, layer(x)[0].d)


def test_a_wrong_input_is_blamed_on_the_input():
    """Errors name the layer and the expected and received shape of the input."""
    with pytest.raises(nn.ShapeError, match=r"Linear: .* input whose axis -1 has size 3, got shape \(2, 9\)"):
        L.Linear(3, 4)(nn.Variable((2, 9)))
    with pytest.raises(nn.ShapeError, match=r"Conv2d: expected an input of 4 axes, got shape \(3, 8, 8\)"):
        L.Conv2d(3, 4, 3)(nn.Variable((3, 8, 8)))
    with pytest.raises(nn.ShapeError, match=r"LayerNorm: .* last axes have the sizes \(6,\), got shape \(2, 5\)"):
        L.LayerNorm(6)(nn.Variable((2, 5)))
    with pytest.raises(nn.ShapeError, match=r"LSTM: expected a state of shape \(1, 2, 4\), got shape \(1, 3, 4\)"):
        L.LSTM(3, 4)(nn.Variable((5, 2, 3)), (nn.Variable((1, 3, 4)), nn.Variable((1, 2, 4))))
    with pytest.raises(TypeError, match="Linear: expected a Variable, got ndarray"):
        L.Linear(3, 4)(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: L.Linear(0, 3), "Linear: expected `in_features`"),
        (lambda: L.Conv(3, 4, 3), "Conv: expected `kernel_size` to be a tuple"),
        (lambda: L.Conv2d(3, 4, (3, 3, 3)), "a tuple of 2 of them"),
        (lambda: L.Conv2d(3, 4, 2, padding="same"), 'an odd kernel, "same"'),
        (lambda: L.Conv2d(3, 4, 3, groups=2), "a multiple of `groups`"),
        (lambda: L.MultiHeadAttention(8, 3), "expected `num_heads` to divide `embed_dim`, got 3 and 8"),
        (lambda: L.GroupNorm(2, 3), "a multiple of `num_groups`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make, error):
    with pytest.raises((ValueError, TypeError), match=error):
        make()


def test_weights_may_be_shared():
    """A parameter assigned to two layers is listed, trained and saved once."""

    class Tied(nn.Module):
        """An embedding whose vectors are the rows of the last weight, too."""

        def __init__(self):
            self.embedding = L.Embedding(7, 4)
            self.head = L.Linear(7, 4, bias=False)
            self.head.W = self.embedding.W

        def call(self, x):
            """Returns the output of the module."""
            return F.affine(self.embedding(x), F.transpose(self.head.W, (1, 0)), base_axis=2)

    network = Tied()
    assert list(network.state_dict()) == ["@embedding/W"]
    assert network.head.parameter_scope["W"] == network.embedding.W
    assert network(nn.Variable.from_numpy_array(np.zeros((2, 3), int))).shape == (2, 3, 7)


def test_frozen_layers_get_no_gradient():
    """A layer frozen by `requires_grad_(False)` is not trained."""
    network = L.Sequential(("a", L.Linear(3, 4)), ("b", L.Linear(4, 2)))
    network.submodules["a"].requires_grad_(False)
    assert list(network.get_parameters(grad_only=True)) == ["@b/W", "@b/b"]
    loss = F.mean(network(values(5, 3)))
    network.zero_grad()
    loss.backward()
    assert not network[0].W.g.any() and network[1].W.g.any()


def test_networks_of_layers_are_saved(tmp_path):
    """A network of layers is saved and loaded with equal outputs for any batch."""
    network = L.Sequential(
        L.Conv2d(1, 4, 3), L.BatchNorm2d(4), L.ReLU(), L.Flatten(), L.Linear(4 * 36, 3), L.LayerNorm(3)
    )
    network.eval()
    x = values(2, 1, 8, 8)
    expected = network(x).d
    more = values(5, 1, 8, 8)
    with nn.auto_forward(False):
        with nn.graph_def.graph() as graph:
            kept = network(nn.ProtoVariable((2, 1, 8, 8), "x"))
        graph.save(str(tmp_path / "net.nnp"))
        x = nn.Variable((2, 1, 8, 8))
        nn.onnx.save({"y": network(x)}, str(tmp_path / "net.onnx"), inputs={"x": x})
    assert kept.shape == (2, 3)
    np.testing.assert_allclose(nn.onnx.load(str(tmp_path / "net.onnx"))(more.d), network(more).d, rtol=1e-4, atol=1e-5)
    assert {"@conv2d_0/W", "@layer_norm_5/gamma"} <= set(graph.get_parameters(grad_only=False))
    np.testing.assert_allclose(nn.load(str(tmp_path / "net.nnp"))(more.d), network(more).d, rtol=1e-4, atol=1e-5)
    with nn.auto_forward(False):
        nn.save(str(tmp_path / "own.nnp"), {"y": network(x)}, inputs={"x": x}, parameters=network)
    own = nn.load(str(tmp_path / "own.nnp"))
    assert (own.inputs, list(own.get_parameters())) == (["x"], list(network.state_dict()))
    np.testing.assert_allclose(own(more.d), network(more).d, rtol=1e-4, atol=1e-5)
    path = tmp_path / "weights.safetensors"
    nn.save_parameters(path, network.state_dict())
    with nn.parameter_scope("loaded", {}):
        nn.load_parameters(path)
        loaded = nn.get_parameters(grad_only=False)
    network.apply(lambda module: [v.data.zero() for v in module.parameters()])
    network.load_state_dict(loaded)
    np.testing.assert_array_equal(network(values(2, 1, 8, 8)).d, expected)


@pytest.mark.parametrize(("name", "other"), [("Dense", "Linear"), ("Conv2D", "Conv2d"), ("Relu", "ReLU")])
def test_names_of_other_libraries_are_explained(name, other):
    """Layer names of other libraries suggest Kinnor's name."""
    with pytest.raises(AttributeError, match=f"'kinnor.layers' has no attribute '{name}'; did you mean '{other}'"):
        getattr(L, name)


def test_biases_and_normalizations_are_known_by_their_names():
    """The names of parameters tell weights from biases and normalization parameters."""
    layers = [make() for make, *_ in CASES.values()] + [L.LSTM(2, 3), L.GRU(2, 3), L.MultiHeadAttention(4, 2)]
    for layer in layers:
        for name, _ in layer.named_parameters():
            is_weight = any(part in name for part in ("W", "weight", "slope"))
            assert is_weight != name.endswith(("b", "bias", "beta", "gamma")), (layer, name)
