"""Nodes that copy or add constants cost nothing: `Identity`, and `Add` after a convolution."""

import numpy as np
import pytest
from onnx import helper
from onnx_runtime import compared, model_of

import kinnor as nn
import kinnor.onnx
from kinnor.rewrite.patterns import above

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 5, 6)).astype(np.float32)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)


def kinds_of(model):
    """Returns the types of the functions in the graph that a model ran last."""
    *_, graph = model._cache.graphs.values()
    return [f.info.type_name for f in above(graph.roots)]


def numbers(*shape):
    """Returns random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("bias", "merged"),
    [
        (numbers(1, 4, 1, 1), True),
        (numbers(4, 1, 1), True),
        (numbers(2, 4, 1, 1), False),
        (numbers(1, 1, 1, 6), False),
        (numbers(1, 1, 5, 1), False),
        (numbers(1, 2, 4, 5, 6), False),
    ],
    ids=lambda held: str(getattr(held, "shape", held)),
)
@pytest.mark.parametrize("own", [(), ("b",)])
@pytest.mark.parametrize("is_first", [False, True])
def test_constants_that_are_added_to_channels(bias, merged, own, is_first):
    names = ["c", "bias"] if not is_first else ["bias", "c"]
    nodes = [
        helper.make_node("Conv", ["x", "w", *own], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", names, ["s"]),
        helper.make_node("Identity", ["s"], ["same"]),
        helper.make_node("Relu", ["same"], ["y"]),
    ]
    constants = {"w": W, "b": numbers(4), "bias": bias}
    constants = {key: held for key, held in constants.items() if key != "b" or own}
    feed = {"x": X}
    compared(nodes, [feed, {"x": -X[:, :, ::-1].copy()}], ["y"], constants)
    model = kinnor.onnx.load(model_of(nodes, feed, ["y"], constants))
    model(X)
    assert kinds_of(model).count("Add2") == (not merged)
    assert "Identity" not in kinds_of(model)


def test_constants_that_are_added_to_outputs_of_the_model():
    """A convolution whose output is read as it is keeps its bias."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "bias"], ["s"]),
        helper.make_node("Add", ["c", "s"], ["twice"]),
    ]
    constants = {"w": W, "bias": numbers(1, 4, 1, 1)}
    for outputs in (["s", "c"], ["twice"], ["s", "twice"]):
        compared(nodes, [{"x": X}, {"x": 2 * X[:1]}], outputs, constants)


def test_normalizations_behind_an_added_constant():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "bias"], ["s"]),
        helper.make_node("BatchNormalization", ["s", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    constants = {name: numbers(4) for name in ("scale", "shift", "mean")}
    constants |= {"w": W, "bias": numbers(1, 4, 1, 1), "variance": numbers(4) ** 2 + 0.5}
    compared(nodes, [{"x": X}, {"x": X[:1]}], ["y"], constants)
    model = kinnor.onnx.load(model_of(nodes, {"x": X}, ["y"], constants))
    model(X)
    assert kinds_of(model) == ["Convolution"]


def test_graphs_of_other_shapes_share_the_bias():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "bias"], ["y"]),
    ]
    constants = {"w": W, "bias": numbers(1, 4, 1, 1)}
    model = kinnor.onnx.load(model_of(nodes, {"x": X}, ["y"], constants))
    for _ in range(7):
        model(X)
        model(X[:1])
    graphs = list(model._cache.graphs.values())
    assert len(graphs) == 2
    assert len({graph.roots[0].parent.inputs[2].data for graph in graphs}) == 1


@pytest.mark.parametrize("outputs", [["y"], ["y", "h"], ["h", "same", "again"], ["same", "y"], ["first", "y"]])
def test_copies_in_chains(outputs):
    """Copies of inputs, of computed values, of copies, of constants and of slices, also as outputs."""
    nodes = [
        helper.make_node("Identity", ["x"], ["first"]),
        helper.make_node("Exp", ["first"], ["h"]),
        helper.make_node("Identity", ["h"], ["same"]),
        helper.make_node("Identity", ["same"], ["again"]),
        helper.make_node("Identity", ["one"], ["same_one"]),
        helper.make_node("Shape", ["again"], ["s"]),
        helper.make_node("Reshape", ["again", "s"], ["shaped"]),
        helper.make_node("Identity", ["shaped"], ["moved"]),
        helper.make_node("Sub", ["moved", "same_one"], ["rest"]),
        helper.make_node("Mul", ["rest", "same"], ["y"]),
    ]
    feeds = [{"x": X}, {"x": X[:1]}, {"x": X[:, :2, ::2].copy()}, {"x": X}]
    compared(nodes, feeds, outputs, {"one": np.float32(1)})


def test_copies_keep_gradients():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Identity", ["h"], ["same"]),
        helper.make_node("Add", ["same", "h"], ["y"]),
    ]
    w = numbers(5, 6)
    model = kinnor.onnx.load(model_of(nodes, {"x": X}, ["y", "same"], {"w": w}))
    x = nn.Variable.from_numpy_array(X, need_grad=True)
    y, same = model(x)
    nn.forward_all([y, same])
    y.backward()
    np.testing.assert_allclose(y.d, 2 * X * w, rtol=1e-6)
    np.testing.assert_allclose(same.d, X * w, rtol=1e-6)
    np.testing.assert_allclose(x.g, np.broadcast_to(2 * w, X.shape), rtol=1e-6)
    np.testing.assert_allclose(model.get_parameters()["w"].g, 2 * X.sum((0, 1)), rtol=1e-4, atol=1e-5)
