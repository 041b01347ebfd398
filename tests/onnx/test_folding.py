"""Models for inference: batch normalizations and constants are folded until the caller can change parameters."""

from collections import Counter

import numpy as np
import pytest
from test_onnx_networks import densenet, images, listed, resnet, shaken

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
import kinnor.solvers as S


@pytest.fixture(autouse=True)
def seeded():
    """Fixes the seed of parameters."""
    nn.seed(3)


def graphs_of(model):
    """Returns the first graph of each shape of a model from an ONNX file or NNabla's."""
    return list(model._cache.graphs.values())


def counted(model):
    """Returns how many functions of each type the graph has that the model built last."""
    graph = graphs_of(model)[-1]
    found = {}
    for output in graph.roots if hasattr(graph, "roots") else graph[1]:
        output.visit(lambda f: found.setdefault(f, f.info.type_name))
    return Counter(found.values())


def mixed(x):
    """Returns a network with every kind of layer before a batch normalization, and with a computed weight."""
    h = PF.convolution(x, 6, (3, 3), pad=(1, 1), group=3, name="a")
    h = F.relu(PF.batch_normalization(h, batch_stat=False, name="a"))
    h = PF.convolution(F.transpose(h, (0, 2, 3, 1)), 4, (3, 3), channel_last=True, with_bias=False, name="b")
    h = PF.batch_normalization(h, axes=[3], batch_stat=False, name="b")
    h = PF.batch_normalization(PF.affine(h, 5, name="c"), batch_stat=False, name="c")
    w = nn.parameter.get_parameter_or_create("d/W", (4, 5), np.ones((4, 5), np.float32), True)
    return F.affine(h, F.transpose(w * 2.0, (1, 0)))


@pytest.mark.parametrize("extension", ["onnx", "nnp"])
@pytest.mark.parametrize("network", [resnet, densenet, mixed], ids=lambda network: network.__name__)
def test_folded_graphs_give_the_same_numbers(tmp_path, network, extension):
    """A loaded model, folded, agrees with the same model unfolded."""
    x = nn.Variable((2, 3, 32, 32))
    network(x)
    shaken()
    path, y = tmp_path / f"net.{extension}", network(x)
    if extension == "onnx":
        kinnor.onnx.save(y, path, {"x": x})
    else:
        nn.save(path, {"y": y}, {"x": x})
    load = kinnor.onnx.load if extension == "onnx" else nn.load
    model, plain = load(path), load(path)
    plain.get_parameters()
    for n in (2, 3, 2):
        given = images(n)["x"][:, :, :32, :32]
        for found, wanted in zip(listed(model(given)), listed(plain(given)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    before, after = counted(plain), counted(model)
    folds = before["BatchNormalization"] - (0 if network is not densenet else after["BatchNormalization"])
    assert folds > 0
    assert after["BatchNormalization"] == before["BatchNormalization"] - folds
    assert sum(after.values()) <= sum(before.values()) - folds
    if network is mixed:
        assert after["MulScalar"] == 0
        assert before["MulScalar"] + before["Mul2"] > 0


@pytest.fixture
def normalized(tmp_path):
    """Writes a network with a batch normalization to several files. Returns their folder."""
    x = nn.Variable((2, 3, 8, 8))
    h = PF.convolution(x, 4, (3, 3))
    y = PF.batch_normalization(h, batch_stat=False)
    shaken()
    kinnor.onnx.save({"h": h, "y": y}, tmp_path / "both.onnx", {"x": x})
    kinnor.onnx.save({"y": y}, tmp_path / "net.onnx", {"x": x})
    nn.save(tmp_path / "net.nnp", {"y": y}, {"x": x})
    return tmp_path, np.random.default_rng(0).normal(size=x.shape).astype(np.float32)


def test_layers_with_other_consumers_are_not_folded(normalized):
    folder, x = normalized
    model = kinnor.onnx.load(folder / "both.onnx")
    model(x)
    assert counted(model)["BatchNormalization"] == 1


@pytest.mark.parametrize("name", ["net.onnx", "net.nnp"])
def test_changed_parameters_take_effect(normalized, name):
    """`get_parameters` ends folding, so that later changes of parameters apply."""
    folder, x = normalized
    model = (kinnor.onnx if name.endswith("onnx") else nn).load(folder / name)
    before = model(x)
    assert counted(model)["BatchNormalization"] == 0
    parameters = model.get_parameters()
    np.testing.assert_allclose(model(x), before, rtol=1e-4, atol=1e-5)
    assert counted(model)["BatchNormalization"] == 1
    solver = S.Sgd(lr=0.1)
    solver.set_parameters(parameters)
    loss = F.mean(model(nn.Variable.from_numpy_array(x)) ** 2)
    for _ in range(3):
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
    loss.forward()
    np.testing.assert_allclose(np.mean(model(x) ** 2), loss.d, rtol=1e-5)
    assert np.abs(model(x) - before).max() > 1e-3


@pytest.mark.parametrize("name", ["net.onnx", "net.nnp"])
def test_graphs_of_several_shapes_share_folded_weights(normalized, name):
    folder, x = normalized
    model = (kinnor.onnx if name.endswith("onnx") else nn).load(folder / name)
    weights = []
    for n in (1, 2):
        model(x[:n])
        graph = graphs_of(model)[-1]
        output = graph.roots[0] if hasattr(graph, "roots") else graph[1][0]
        weights.append(output.parent.inputs[1:])
    assert weights[0] == weights[1]


def test_a_network_held_by_the_caller_is_not_folded(normalized):
    """Changes of parameters reached through `model.network` apply."""
    folder, x = normalized
    model = nn.load(folder / "net.nnp")
    before = model(x)
    held = model.network.owner.get_parameters()
    next(v for k, v in held.items() if k.endswith("gamma")).d *= 2
    assert np.abs(model(x) - before).max() > 1e-3


def test_scalars_become_arguments_and_transposes_are_folded(tmp_path):
    x = nn.Variable((2, 3, 4))
    three, row = (nn.Variable.from_numpy_array(np.float32(v)) for v in (3, [[[3, 1, 2, 4]]]))
    y = F.mul2(F.sub2(three, F.pow2(F.add2(x, three), F.reshape(three, (1,)))), F.add2(x, row))
    y = F.minimum2(F.maximum2(F.sub2(y, three), F.div2(three, F.exp(x))), F.mul2(three, x))
    z = F.batch_matmul(F.transpose(x, (0, 2, 1)), F.transpose(F.sin(x), (0, 2, 1)), transpose_b=True)
    wide = F.add2(F.reshape(F.sum(x), (1,)), F.reshape(three, (1, 1)))
    y = F.sigmoid(y) * y
    kinnor.onnx.save([y, z, wide], tmp_path / "net.onnx", {"x": x})
    model, plain = kinnor.onnx.load(tmp_path / "net.onnx"), kinnor.onnx.load(tmp_path / "net.onnx")
    plain.get_parameters()
    given = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    for found, wanted in zip(model(given), plain(given), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    kinds = counted(model)
    assert (kinds["BatchMatmul"], kinds["Transpose"]) == (1, 0)
    assert [kinds[kind] for kind in ("PowScalar", "RSubScalar", "RDivScalar", "MaximumScalar")] == [1, 1, 1, 0]
    assert kinds["Add2"] == 2
    assert kinds["Minimum2"] == kinds["Maximum2"] == kinds["Swish"] == 1
    assert kinds["Sigmoid"] == 0


def test_hard_gates_become_hard_swish(tmp_path):
    """Three forms of hard-swish are replaced by `hard_swish`, and similar functions are not."""
    x = nn.Variable((2, 3, 4))
    bounded = F.minimum_scalar(F.maximum_scalar(x * (1 / 6) + 0.5, 0.0), 1.0)
    made = [x * F.relu6(x + 3.0) * (1 / 6), bounded * x, F.hard_swish(x)]
    others = [x * F.relu6(x + 3.0) * (1 / 5), x * F.relu6(x + 2.0) * (1 / 6), F.exp(x) * bounded]
    kinnor.onnx.save([*made, *others], tmp_path / "net.onnx", {"x": x})
    model, plain = kinnor.onnx.load(tmp_path / "net.onnx"), kinnor.onnx.load(tmp_path / "net.onnx")
    plain.get_parameters()
    given = 3 * np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    for found, wanted in zip(model(given), plain(given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    kinds = counted(model)
    assert (kinds["HardSwish"], kinds["Mul2"]) == (3, 3)


def test_recurrent_inference_saves_nothing_for_gradients(tmp_path):
    """A loaded recurrent network runs with `training=False`."""
    x = nn.Variable((5, 2, 3))
    h, c = (nn.Variable.from_numpy_array(np.zeros((1, 1, 2, 4), np.float32)) for _ in "hc")
    w = nn.parameter.get_parameter_or_create("w", (1, 4, 4, 7))
    b = nn.parameter.get_parameter_or_create("b", (1, 1, 4, 4))
    shaken()
    y = F.lstm(x, h, c, w, None, b, training=True)[0]
    kinnor.onnx.save({"y": y}, tmp_path / "net.onnx", {"x": x}, free_batch=False)
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    given = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)

    def arguments():
        """Returns the `training` argument of each LSTM in the last graph."""
        found = []
        graphs_of(model)[-1].roots[0].visit(lambda f: found.append(f.info))
        return [info.args["training"] for info in found if info.type_name == "LSTM"]

    before = model(given)
    assert arguments() == [False]
    parameters = model.get_parameters()
    np.testing.assert_array_equal(model(given), before)
    assert arguments() == [True]
    loss = F.mean(model(nn.Variable.from_numpy_array(given)) ** 2)
    loss.forward()
    loss.backward()
    assert all(np.abs(v.g).max() > 0 for v in parameters.values() if v.size > 16)


def test_intermediate_results_of_folding_are_freed(tmp_path):
    """Folding keeps the folded weight and frees the arrays that it was computed from."""
    x = nn.Variable((2, 64))
    w = nn.parameter.get_parameter_or_create("w", (64, 64), np.eye(64, dtype=np.float32), True)
    y = F.affine(x, F.transpose(F.exp(w * 0.5) + w, (1, 0)))
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    given = np.ones((2, 64), np.float32)
    before = nn.memory_stats()["live"]
    model(given)
    assert nn.memory_stats()["live"] - before < 2 * 4 * 64 * 64
    for _ in range(6):
        model(given[:1])
        model(given)  # lengths that come back often get a graph of their own
    weights = [next(iter(graph.roots)).parent.inputs[1].data for graph in graphs_of(model)]
    assert len(weights) == 2
    assert weights[0] == weights[1]
    np.testing.assert_allclose(model(given), given @ (np.exp(0.5 * np.eye(64)) + np.eye(64)).T, rtol=1e-5)


def test_slices_of_a_cache_are_joined_without_a_copy(tmp_path):
    past, new = nn.Variable((3, 4, 2, 5, 600)), nn.Variable((3, 2, 1, 600))
    ends = []
    for i in range(4):
        old = F.reshape(past[:, i], (3, 2, 5, 600), inplace=False)
        first = F.reshape(F.stack(F.sin(new), new, axis=0)[i % 2 :][:1], (3, 2, 1, 600), inplace=False)
        joined = F.concatenate(old, first, axis=2)
        ends.append(F.concatenate(new, joined, axis=2))
    y = F.stack(*ends, axis=1)
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"past": past, "new": new})
    model, plain = (kinnor.onnx.load(tmp_path / "net.onnx") for _ in range(2))
    plain.get_parameters()
    rng = np.random.default_rng(1)
    for n in (3, 1, 3):
        given = {"past": rng.standard_normal((n, 4, 2, 5, 600)), "new": rng.standard_normal((n, 2, 1, 600))}
        given = {key: held.astype(np.float32) for key, held in given.items()}
        np.testing.assert_array_equal(model(**given), plain(**given))
    kinds = counted(model)
    assert (kinds["ConcatenateParts"], kinds["Slice"]) == (4, 4)  # slices of new values are copied


def test_a_constant_that_is_added_to_a_layer_is_its_bias(tmp_path):
    x, given = nn.Variable((2, 3, 4)), nn.Variable((5,))
    b = nn.Variable.from_numpy_array(np.arange(5, dtype=np.float32))
    w = [
        nn.parameter.get_parameter_or_create(f"w{i}", (4, 5), np.full((4, 5), i + 1.0, np.float32), True)
        for i in range(4)
    ]
    layers = [F.affine(x, each, base_axis=2) for each in w]
    outputs = [b + layers[0], F.tanh(layers[1] + b), layers[2] + given, layers[3] + b, layers[3] * 2.0]
    kinnor.onnx.save(outputs, tmp_path / "net.onnx", {"x": x, "given": given})
    model, plain = (kinnor.onnx.load(tmp_path / "net.onnx") for _ in range(2))
    plain.get_parameters()
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(held.shape).astype(np.float32) for held in (x, given)]
    for found, wanted in zip(model(*arrays), plain(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    assert (counted(model)["Add2"], counted(plain)["Add2"]) == (2, 4)


def test_a_channel_gate_scales_the_next_weight_if_that_is_smaller(tmp_path):
    def gated(x, n, name, **how):
        """Returns a convolution of `x`, scaled by a gate for each channel, and the gate."""
        gate = F.sigmoid(PF.convolution(F.mean(x, axis=(2, 3), keepdims=True), x.shape[1], (1, 1), name=f"{name}/gate"))
        return PF.convolution(gate * x, n, how.pop("kernel", (1, 1)), name=name, **how), gate

    x = nn.Variable((2, 4, 5, 6))
    h, _ = gated(x, 6, "taken")
    h = h + gated(PF.batch_normalization(h, batch_stat=False, name="n"), 6, "residual", group=2, with_bias=False)[0]
    more, _ = gated(h, 31, "more maps than positions")
    wide, _ = gated(h, 5, "of several elements", kernel=(3, 3))
    shown, gate = gated(h, 5, "gate is an output, too")
    twice = gate * x[:, :1]
    both = PF.convolution(twice, 5, (1, 1), name="scaled is an output") + PF.convolution(twice, 5, (1, 1), name="again")
    shaken()
    kinnor.onnx.save([more, wide, shown, gate, both], tmp_path / "net.onnx", {"x": x})
    model, plain = (kinnor.onnx.load(tmp_path / "net.onnx") for _ in range(2))
    plain.get_parameters()
    for n in (2, 1, 3):
        given = np.random.default_rng(n).standard_normal((n, 4, 5, 6)).astype(np.float32)
        for found, wanted in zip(model(given), plain(given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert (counted(model)["ModulatedConvolution"], counted(plain)["ModulatedConvolution"]) == (3, 0)


def test_a_weight_computed_of_constants_is_folded(tmp_path):
    rng = np.random.default_rng(2)
    x = nn.Variable((3, 96))
    a = nn.parameter.get_parameter_or_create("a", (96, 1), rng.standard_normal((96, 1)).astype(np.float32), True)
    b = nn.parameter.get_parameter_or_create("b", (1, 512), rng.standard_normal((1, 512)).astype(np.float32), True)
    angles = a + b
    w = F.where(F.greater_scalar(angles, 0.0), F.sin(angles), F.cos(angles))
    kinnor.onnx.save(F.affine(x, w), tmp_path / "net.onnx", {"x": x})
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    sums = a.d.astype(float) + b.d
    for n in (3, 5):
        given = rng.standard_normal((n, 96)).astype(np.float32)
        wanted = given @ np.where(sums > 0, np.sin(sums), np.cos(sums))
        np.testing.assert_allclose(model(given), wanted, rtol=1e-4, atol=1e-4)
    for graph in graphs_of(model):
        found = []
        graph.roots[0].visit(lambda f: found.append(f.info.type_name))  # noqa: B023
        assert found == ["Affine"]
