"""Graphs of ONNX models that are given inputs of other lengths. They give what a new graph gives and are not built."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_harness import equal

import kinnor.onnx
from kinnor.onnx.read.building import Builder

RNG = np.random.default_rng(7)


def model_of(nodes, inputs, outputs, constants=()):
    """Returns a `ModelProto` with open lengths.

    Args:
        nodes: Its nodes.
        inputs: Names, element types and ranks of its inputs.
        outputs: Names of its outputs.
        constants: Arrays by name.
    """
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind, rank in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def heads():
    """Attention over two heads: shapes follow from `Shape`, a constant table is cut to the length."""
    w = RNG.standard_normal((8, 24)).astype(np.float32)
    table = RNG.standard_normal((64, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["b"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Unsqueeze", ["b", "axis"], ["b1"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Slice", ["table", "axis", "n1"], ["place"]),
        helper.make_node("Add", ["x", "place"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Concat", ["b1", "n1", "heads"], ["split"], axis=0),
        helper.make_node("Reshape", ["p", "split"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        *(helper.make_node("Gather", ["t", name], [f"{name}_part"], axis=0) for name in ("zero", "one", "two")),
        helper.make_node("Transpose", ["one_part"], ["k"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["zero_part", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "two_part"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "flat"], ["joined"]),
        helper.make_node("Split", ["joined"], ["left", "right"], axis=2),
        helper.make_node("Mul", ["left", "right"], ["y"]),
    ]
    constants = {
        **{name: np.int64(i) for i, name in enumerate(("zero", "one", "two"))},
        "axis": np.int64([0]),
        "heads": np.int64([3, 2, 4]),
        "flat": np.int64([0, 0, -1]),
        "w": w,
        "table": table,
    }
    return model_of(nodes, [("x", TensorProto.FLOAT, 3)], ["y", "s"], constants), lambda b, n: (b, n, 8)


def recurrent():
    """A bidirectional LSTM whose initial states have the batch of the input."""
    w, r, bias = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 12, 5), (2, 12, 3), (2, 24)))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Concat", ["two", "s", "three"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["h"]),
        helper.make_node(
            "LSTM", ["x", "w", "r", "bias", "", "h", "h"], ["y", "last"], hidden_size=3, direction="bidirectional"
        ),
    ]
    constants = {"two": np.int64([2]), "three": np.int64([3]), "w": w, "r": r, "bias": bias}
    return model_of(nodes, [("x", TensorProto.FLOAT, 3)], ["y", "last"], constants), lambda b, n: (n, b, 5)


def image():
    """A convolution with a gate of its own mean, resized to twice the lengths and cut to odd ones."""
    w, gate = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4, 4, 1, 1)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["h"], ["mean"]),
        helper.make_node("Conv", ["mean", "gate"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["h", "s"], ["m"]),
        helper.make_node("Conv", ["m", "gate"], ["c"]),
        helper.make_node("Resize", ["c", "", "scales"], ["large"], mode="nearest"),
        helper.make_node("Slice", ["large", "from", "to", "axes"], ["cut"]),
        helper.make_node("MaxPool", ["cut"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    ]
    constants = {
        "w": w,
        "gate": gate,
        "scales": np.float32([1, 1, 2, 2]),
        "from": np.int64([1, 0]),
        "to": np.int64([1 << 40, -1]),
        "axes": np.int64([2, 3]),
    }
    return model_of(nodes, [("x", TensorProto.FLOAT, 4)], ["y"], constants), lambda b, n: (b, 3, n, n + 1)


def quantized():
    """A product of dynamically quantized rows, whose scale and zero point other nodes read as well."""
    levels = RNG.integers(-127, 127, (6, 5)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "levels", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
        helper.make_node("Shape", ["y"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=0),
    ]
    return model_of(nodes, [("x", TensorProto.FLOAT, 3)], ["y", "scale", "n"], {"levels": levels}), lambda b, n: (
        b,
        n,
        6,
    )


NETWORKS = [heads, recurrent, image, quantized]
"""Functions that make a model and the shape of its input."""


@pytest.fixture
def built(monkeypatch):
    """Counts how often a model is built from its nodes."""
    counts = []
    build = Builder.build
    monkeypatch.setattr(
        Builder, "build", lambda self, *args, **named: (counts.append(1), build(self, *args, **named))[1]
    )
    return counts


@pytest.mark.parametrize("make", NETWORKS)
def test_new_lengths_give_what_a_new_model_gives_and_build_nothing(make, built):
    proto, shape = make()
    model = kinnor.onnx.load(proto)
    sizes = [(1, 4), (1, 9), (3, 9), (2, 1), (5, 6), (1, 2)]
    inputs = [RNG.standard_normal(shape(*size)).astype(np.float32) for size in sizes]
    wanted = [kinnor.onnx.load(proto)(x) for x in inputs]
    built.clear()
    for x, y in zip(inputs, wanted, strict=True):
        for _ in range(3):  # the second run has another plan than the first
            equal(model(x), y, 1e-5, 1e-5)
    for _ in range(4):
        for x, y in zip(inputs, wanted, strict=True):
            equal(model(x), y, 1e-5, 1e-5)
    assert len(built) == 1  # lengths that come back are given to the graph again
    for _ in range(4):
        for x, y in zip(inputs, wanted, strict=True):
            equal(model(x), y, 1e-5, 1e-5)
    assert len(built) == len(sizes)  # lengths that come back often get graphs of their own


def test_more_lengths_than_graphs_build_no_more_graphs(built):
    """The oldest graph is given the lengths that come next, also if they come back, once the cache is full."""
    proto, shape = heads()
    model = kinnor.onnx.load(proto)
    inputs = [RNG.standard_normal(shape(2, n)).astype(np.float32) for n in range(1, 14)]
    wanted = [kinnor.onnx.load(proto)(x) for x in inputs]
    built.clear()
    for _ in range(10):
        for x, y in zip(inputs, wanted, strict=True):
            equal(model(x), y, 1e-5, 1e-5)
    assert len(built) == len(model._cache.graphs) == 8


def test_lengths_for_which_other_functions_are_needed_are_built_anew():
    """One row is repeated, others are not; an empty part is left out."""
    nodes = [
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Expand", ["a", "s"], ["wide"]),
        helper.make_node("Add", ["wide", "b"], ["sum"]),
        helper.make_node("Concat", ["sum", "c"], ["y"], axis=0),
    ]
    model = kinnor.onnx.load(model_of(nodes, [(name, TensorProto.FLOAT, 2) for name in "abc"], ["y"]))
    for rows, more in ((3, 0), (1, 2), (3, 0), (1, 0), (4, 1), (2, 2), (1, 3), (3, 0)):
        for n in (1, rows):
            a, b, c = (RNG.standard_normal((k, 2)).astype(np.float32) for k in (n, rows, more))
            equal(model(a, b, c), np.concatenate([a + b, c]))


def test_values_that_decide_on_shapes_give_a_graph_for_other_values(built):
    nodes = [
        helper.make_node("Range", ["zero", "n", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "axis"], ["column"]),
        helper.make_node("Mul", ["x", "column"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "axis": np.int64([1])}
    inputs = [("n", TensorProto.INT64, 0), ("x", TensorProto.FLOAT, 2)]
    model = kinnor.onnx.load(model_of(nodes, inputs, ["y"], constants))
    x = RNG.standard_normal((1, 3)).astype(np.float32)
    model(np.int64(4), x)
    built.clear()
    for n in (7, 2, 30, 1):
        equal(model(np.int64(n), x), x * np.arange(n, dtype=np.float32)[:, None])
    assert not built


def test_trained_models_follow_too(built):
    """A model with changed parameters adapts to new lengths without being built again."""
    proto, shape = heads()
    model = kinnor.onnx.load(proto)
    model.get_parameters()["w"].d *= 2
    other = kinnor.onnx.load(proto)
    other.get_parameters()["w"].d *= 2
    inputs = [RNG.standard_normal(shape(*size)).astype(np.float32) for size in ((1, 3), (2, 5), (1, 8))]
    wanted = [other(x) for x in inputs]
    built.clear()
    for x, y in zip(inputs, wanted, strict=True):
        equal(model(x), y, 1e-5, 1e-5)
    assert len(built) == 1


@pytest.mark.parametrize(("width", "follows"), [(4, True), (20_000, False)])
def test_small_parts_are_joined_by_a_copy(width, follows, built):
    """A graph that joins small slices of an array follows other lengths. Large ones are joined without a copy."""
    nodes = [
        helper.make_node("Gather", ["x", "zero"], ["first"], axis=0),
        helper.make_node("Gather", ["x", "one"], ["second"], axis=0),
        helper.make_node("Concat", ["first", "second", "x_rows"], ["y"], axis=0),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(-1)}
    inputs = [("x", TensorProto.FLOAT, 3), ("x_rows", TensorProto.FLOAT, 2)]
    model = kinnor.onnx.load(model_of(nodes, inputs, ["y"], constants))
    for n, k in ((3, 2), (5, 2), (2, 4)):
        x, rows = (RNG.standard_normal(shape).astype(np.float32) for shape in ((n, k, width), (k, width)))
        equal(model(x, rows), np.concatenate([x[0], x[-1], rows]))
    assert (len(built) == 1) == follows
