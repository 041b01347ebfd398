"""Networks of usual architectures, small: written as ONNX, run by onnxruntime and read again, with any batch."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from test_onnx_saving import agrees, listed, run

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
from kinnor_cli import main

pytestmark = pytest.mark.usefixtures("no_parameters")

EXAMPLES = Path(__file__).parents[1] / "examples"


def normalized(x, name):
    return PF.batch_normalization(x, batch_stat=False, name=name)


def convolution(x, n, size, name, stride=1, group=1, act=F.relu):
    pad = (size // 2,) * 2
    if group == x.shape[1] > 1:
        h = PF.depthwise_convolution(x, (size,) * 2, pad=pad, stride=(stride,) * 2, with_bias=False, name=name)
    else:
        h = PF.convolution(x, n, (size,) * 2, pad=pad, stride=(stride,) * 2, group=group, with_bias=False, name=name)
    return act(normalized(h, name))


def resnet(x):
    h = F.max_pooling(convolution(x, 8, 7, "stem", 2), (3, 3), (2, 2), pad=(1, 1))
    for i, width in enumerate((8, 16)):
        for j in range(2):
            name, stride = f"block{i}{j}", 1 + (i > 0 and j == 0)
            y = convolution(convolution(h, width, 1, f"{name}a"), width, 3, f"{name}b", stride)
            y = convolution(y, 4 * width, 1, f"{name}c", act=F.identity)
            s = h if j else convolution(h, 4 * width, 1, f"{name}s", stride, act=F.identity)
            h = F.relu(F.add2(y, s))
    return PF.affine(F.global_average_pooling(h), 10, name="fc")


def hard_swish(x):
    return x * F.relu6(x + 3.0) * (1 / 6)


def squeezed(x, n, name, act, gate):
    h = F.mean(x, axis=(2, 3), keepdims=True)
    h = act(PF.convolution(h, n, (1, 1), name=f"{name}1"))
    return x * gate(PF.convolution(h, x.shape[1], (1, 1), name=f"{name}2"))


def mobilenet(x):
    h = convolution(x, 8, 3, "stem", 2, act=hard_swish)
    for i, (wide, n, size, stride) in enumerate([(16, 8, 3, 1), (24, 12, 5, 2)]):
        y = convolution(h, wide, 1, f"b{i}a", act=hard_swish)
        y = convolution(y, wide, size, f"b{i}b", stride, group=wide, act=hard_swish)
        y = squeezed(y, 4, f"b{i}s", F.relu, F.hard_sigmoid)
        y = convolution(y, n, 1, f"b{i}c", act=F.identity)
        h = y + h if y.shape == h.shape else y
    return PF.affine(hard_swish(PF.affine(F.global_average_pooling(h), 16, name="fc1")), 10, name="fc2")


def efficientnet(x):
    h = convolution(x, 8, 3, "stem", 2, act=F.swish)
    for i, (n, size, stride) in enumerate([(8, 3, 1), (12, 5, 2)]):
        wide = 4 * h.shape[1]
        y = convolution(h, wide, 1, f"b{i}a", act=F.swish)
        y = convolution(y, wide, size, f"b{i}b", stride, group=wide, act=F.swish)
        y = convolution(squeezed(y, 2, f"b{i}s", F.swish, F.sigmoid), n, 1, f"b{i}c", act=F.identity)
        h = y + h if y.shape == h.shape else y
    return PF.affine(F.dropout(F.global_average_pooling(h), 0.2), 10, name="fc")


def densenet(x):
    h = convolution(x, 8, 3, "stem")
    for i in range(2):
        for j in range(3):
            y = PF.convolution(F.relu(normalized(h, f"n{i}{j}")), 4, (3, 3), pad=(1, 1), name=f"c{i}{j}")
            h = F.concatenate(h, y, axis=1)
        h = F.average_pooling(convolution(h, h.shape[1] // 2, 1, f"t{i}"), (2, 2))
    return F.log_softmax(PF.affine(F.global_average_pooling(h), 10, name="fc"))


def unet(x):
    a = convolution(x, 4, 3, "a")
    b = convolution(F.max_pooling(a, (2, 2)), 8, 3, "b")
    c = convolution(F.max_pooling(b, (2, 2)), 16, 3, "c")
    h = F.concatenate(PF.deconvolution(c, 8, (2, 2), stride=(2, 2), name="up1"), b, axis=1)
    h = convolution(h, 8, 3, "d")
    h = F.concatenate(F.interpolate(h, scale=(2, 2), mode="linear", half_pixel=True), a, axis=1)
    h = PF.convolution(PF.group_normalization(h, 4, name="g"), 2, (1, 1), name="out")
    return F.softmax(h, axis=1), F.interpolate(h, scale=(2, 2), mode="nearest")


def yolo(x):
    h = convolution(convolution(x, 8, 3, "a", 4), 16, 3, "b", 2)
    h = PF.convolution(h, 2 * 8, (1, 1), name="head")
    n, _, height, width = h.shape
    h = F.transpose(F.reshape(h, (n, 2, 8, height, width)), (0, 1, 3, 4, 2))
    ys, xs = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    cells = nn.Variable.from_numpy_array(np.stack([xs, ys], axis=-1)[None, None].astype(np.float32))
    centres = (F.sigmoid(h[..., :2]) + cells) * (1 / width)
    sizes = F.exp(h[..., 2:4]) * 0.3
    boxes = F.concatenate(centres, sizes, F.sigmoid(h[..., 4:]), axis=4)
    return F.nms_detection2d(F.reshape(boxes, (n, 2 * height * width, 8)), thresh=0.2, nms=0.3)


def attended(h, n_heads, name, mask=None, causal=False, past=None):
    n, time, width = h.shape
    parts = PF.affine(h, 3 * width, base_axis=2, name=f"{name}/qkv")
    parts = F.transpose(F.reshape(parts, (n, time, 3, n_heads, width // n_heads)), (2, 0, 3, 1, 4))
    q, k, v = F.split(parts, axis=0)
    if past is not None:
        k, v = (F.concatenate(old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
    y = F.scaled_dot_product_attention(q, k, v, mask, causal=causal)
    y = F.reshape(F.transpose(y, (0, 2, 1, 3)), (n, time, width))
    return PF.affine(y, width, base_axis=2, name=f"{name}/out"), k, v


def perceptron(h, name, act=F.gelu):
    return PF.affine(
        act(PF.affine(h, 2 * h.shape[2], base_axis=2, name=f"{name}/1")), h.shape[2], base_axis=2, name=f"{name}/2"
    )


def layer_norm(h, name):
    return PF.layer_normalization(h, batch_axis=(0, 1), name=name)


def bert(tokens, mask):
    n, time = tokens.shape
    h = PF.embed(tokens, 50, 16, name="words")
    h = layer_norm(h + PF.embed(nn.Variable.from_numpy_array(np.arange(time)), time, 16, name="places"), "n")
    hidden = F.reshape((1.0 - mask) * -1e4, (n, 1, 1, time))
    for i in range(2):
        h = layer_norm(h + attended(h, 4, f"a{i}", hidden)[0], f"n{i}1")
        h = layer_norm(h + perceptron(h, f"m{i}"), f"n{i}2")
    return h, F.tanh(PF.affine(h[:, 0], 16, name="pool"))


def gpt2(tokens, keys, values):
    h = PF.embed(tokens, 50, 16, name="words")
    ends = []
    for i in range(2):
        past = [F.reshape(held[:, i], (held.shape[0], *held.shape[2:])) for held in (keys, values)]
        y, k, v = attended(layer_norm(h, f"n{i}1"), 4, f"a{i}", causal=False, past=past)
        h = h + y
        h = h + perceptron(layer_norm(h, f"n{i}2"), f"m{i}")
        ends += [k, v]
    scores = PF.affine(layer_norm(h, "n"), 50, base_axis=2, with_bias=False, name="head")
    return scores, F.stack(*ends[::2], axis=1), F.stack(*ends[1::2], axis=1)


def vit(x):
    n = x.shape[0]
    h = PF.convolution(x, 16, (8, 8), stride=(8, 8), name="patches")
    h = F.transpose(F.reshape(h, (n, 16, 16)), (0, 2, 1))
    with nn.parameter_scope("vit"):
        token = nn.parameter.get_parameter_or_create("token", (1, 1, 16))
        places = nn.parameter.get_parameter_or_create("places", (1, 17, 16))
    h = F.concatenate(F.broadcast(token, (n, 1, 16)), h, axis=1) + places
    for i in range(2):
        h = h + attended(layer_norm(h, f"n{i}1"), 2, f"a{i}")[0]
        h = h + perceptron(layer_norm(h, f"n{i}2"), f"m{i}")
    return PF.affine(layer_norm(h, "n")[:, 0], 10, name="fc")


def lstm(x):
    h = F.transpose(x, (1, 0, 2))
    zeros = F.transpose(F.constant(0, (x.shape[0], 2, 2, 6)), (1, 2, 0, 3))
    shapes = {"first": (2, 4, 6, 9), "later": (1, 2, 4, 6, 18), "bias": (2, 2, 4, 6)}
    w = [nn.parameter.get_parameter_or_create(f"lstm/{key}", shape) for key, shape in shapes.items()]
    y, _, _ = F.lstm(h, zeros, zeros, *w, num_layers=2, bidirectional=True, training=False)
    return PF.affine(y[-1], 4, name="fc")


def images(n):
    return {"x": np.random.default_rng(n).normal(size=(n, 3, 32, 32)).astype(np.float32)}


def words(n):
    rng = np.random.default_rng(n)
    return {"tokens": rng.integers(50, size=(n, 6)), "mask": (rng.random((n, 6)) < 0.8).astype(np.float32)}


def cached(n):
    rng = np.random.default_rng(n)
    past = {key: rng.normal(size=(n, 2, 4, 3, 4)).astype(np.float32) for key in ("keys", "values")}
    return {"tokens": rng.integers(50, size=(n, 1)), **past}


def sequences(n):
    return {"x": np.random.default_rng(n).normal(size=(n, 5, 3)).astype(np.float32)}


NETWORKS = {
    resnet: images,
    mobilenet: images,
    efficientnet: images,
    densenet: images,
    unet: images,
    yolo: images,
    bert: words,
    gpt2: cached,
    vit: images,
    lstm: sequences,
}


def shaken(seed=0):
    """Parameters other than ones and zeros, so that each matters."""
    rng = np.random.default_rng(seed)
    for key, x in nn.get_parameters(grad_only=False).items():
        noise = rng.normal(size=x.shape).astype(np.float32) * 0.1
        x.d = np.abs(x.d + noise) + 0.1 if key.endswith("var") else x.d + noise


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_architectures(tmp_path, network):
    def built(n):
        given = {key: nn.Variable.from_numpy_array(x) for key, x in NETWORKS[network](n).items()}
        return given, listed(network(**given))

    built(2)
    shaken()
    inputs, outputs = built(2)
    path = tmp_path / "net.onnx"
    kinnor.onnx.save(outputs, path, inputs)
    model = kinnor.onnx.load(path)
    assert set(model.get_parameters()) >= {k for k, x in nn.get_parameters().items()}
    for n in (2, 3):
        given, wanted = NETWORKS[network](n), built(n)[1]
        nn.forward_all(wanted)
        wanted = [y.d.copy() for y in wanted]
        if network is efficientnet:  # Dropout is for training.
            with_dropout, F.dropout = F.dropout, lambda x, p: x
            wanted = [y.d for y in built(n)[1] if y.forward() is None]
            F.dropout = with_dropout
        agrees(run(path, given), wanted)
        agrees(listed(model(**given)), wanted)


def test_einsum(tmp_path):
    x, w = nn.Variable((2, 3)), nn.Variable.from_numpy_array(np.arange(12.0).reshape(3, 4))
    y = F.einsum(x, w, equation="ij,jk->ki")
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    x.d = np.random.default_rng(0).normal(size=x.shape)
    y.forward()
    agrees(run(tmp_path / "net.onnx", {"x": x.d}), [y.d])


def test_networks_of_the_examples(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    lenet = runpy.run_path(str(EXAMPLES / "lenet.py"))["lenet"]
    features = runpy.run_path(str(EXAMPLES / "frozen_network.py"))["random_features"]
    for network in (lenet, features):
        x = nn.Variable((2, 1, 8, 8))
        y = network(x)
        shaken()
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
        x.d = np.random.default_rng(0).random(x.shape)
        y.forward()
        agrees(run(tmp_path / "net.onnx", {"x": x.d}), [y.d])
        agrees([kinnor.onnx.load(tmp_path / "net.onnx")(x.d)], [y.d])


def test_the_command_converts_both_ways(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = nn.Variable((2, 3, 32, 32))
    y = resnet(x)
    shaken()
    nn.save("net.nnp", {"y": y}, {"x": x})
    for command in ("net.nnp net.onnx", "net.onnx again.nnp", "again.nnp again.onnx", "net.onnx w.safetensors"):
        assert main(["convert", *command.split()]) == 0, capsys.readouterr().err
    given = images(3)
    wanted = nn.load("net.nnp")(**given)
    agrees(run("net.onnx", given), [wanted])
    agrees([nn.load("again.nnp")(**given)], [wanted])
    agrees(run("again.onnx", given), [wanted])
    x = nn.Variable((4, 3, 2))
    nn.save("fft.nnp", {"y": F.fft(x, 1)}, {"x": x})
    assert main(["convert", "fft.nnp", "fft.onnx"]) == 1
    assert "expected functions of docs/onnx.md, got FFT" in capsys.readouterr().err
    assert not (tmp_path / "fft.onnx").exists()
