"""Graphs of ONNX models that are given inputs of other lengths. They give what a new graph gives and are not built."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_harness import equal

import kinnor.onnx
from kinnor.onnx.read.building import Builder
from kinnor.onnx.read.following import Following

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


def _free(kind, shapes, *constants, n_outputs=1, **attributes):
    """A parameter of `test_functions_that_fit_all_lengths_are_not_built_again`.

    Args:
        kind: The operator.
        shapes: Shapes of its first input.
        constants: Its other inputs.
        n_outputs: Number of its outputs.
        attributes: Its attributes.
    """
    return pytest.param(kind, shapes, constants, n_outputs, attributes, id=f"{kind}-{len(constants)}-{attributes}")


PLANES = [(1, 4, 5, 7), (2, 4, 9, 6), (3, 4, 6, 6), (1, 4, 8, 11)]
ROWS = [(2, 7, 6), (3, 4, 6), (1, 9, 6), (5, 2, 6)]
RESIZED = (np.float32([]), np.float32([1, 1, 2, 3]))
"""Inputs of `Resize`."""
WEIGHT = RNG.standard_normal((4, 3, 2, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "shapes", "constants", "n_outputs", "attributes"),
    [
        _free("Slice", ROWS, np.int64([1]), np.int64([1 << 62]), np.int64([-2])),
        _free("Slice", ROWS, np.int64([-2, 0]), np.int64([9, 1]), np.int64([1, 2])),
        _free("Slice", ROWS, np.int64([-1, 4]), np.int64([-(2**62), 0]), np.int64([1, 2]), np.int64([-1, -2])),
        _free("Slice", ROWS, np.int64([-2]), np.int64([-1]), np.int64([1])),
        _free("Reshape", ROWS, np.int64([0, -1, 2, 3])),
        _free("Reshape", ROWS, np.int64([-1, 3])),
        _free("Flatten", ROWS, axis=0),
        _free("Flatten", ROWS, axis=1),
        _free("Flatten", ROWS, axis=-1),
        _free("Flatten", ROWS, axis=3),
        _free("Unsqueeze", ROWS, np.int64([-1, 1])),
        _free("Squeeze", [(2, 1, 5), (3, 1, 4), (1, 1, 1), (4, 1, 2)], np.int64([1])),
        _free("Gather", ROWS, np.int64(-1), axis=1),
        _free("Gather", ROWS, np.int64(0), axis=1),
        _free("Split", ROWS, np.int64([1, 3, 2]), n_outputs=3, axis=2),
        _free("Pad", ROWS, np.int64([0, 1, 2, 1, 2, 0]), np.float32(3)),
        _free("Pad", ROWS, np.int64([0, 0, 1, 0, 0, 2]), mode="reflect"),
        _free("PRelu", PLANES, RNG.standard_normal((4, 1, 1)).astype(np.float32)),
        _free("Resize", PLANES, np.float32([]), np.float32([1, 1, 2, 3])),
        _free("Resize", PLANES, np.float32([]), np.float32([1, 2, 1, 4]), mode="nearest"),
        _free(
            "Resize",
            PLANES,
            np.float32([]),
            np.float32([1, 1, 2, 2]),
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        _free("ConvTranspose", PLANES, WEIGHT, strides=[2, 3], pads=[0, 1, 1, 0]),
        _free("ConvTranspose", PLANES, WEIGHT, RNG.standard_normal(3).astype(np.float32), auto_pad="SAME_UPPER"),
        _free("ConvTranspose", PLANES, WEIGHT, strides=[2, 2], output_padding=[1, 1], pads=[0, 0, 0, 1]),
        _free("Conv", PLANES, WEIGHT.transpose(1, 0, 2, 3)[:, [0, 1, 2, 2]], auto_pad="SAME_LOWER"),
    ],
)
def test_functions_that_fit_all_lengths_are_not_built_again(
    kind, shapes, constants, n_outputs, attributes, built, monkeypatch
):
    """Nodes whose arguments are constants give what the reference gives, and moves do not build them again."""
    names, outputs = [f"c{i}" for i in range(len(constants))], [f"y{i}" for i in range(n_outputs)]
    nodes = [
        helper.make_node("Abs", ["x"], ["z"]),
        helper.make_node(kind, ["z", *names], [f"{name}_made" for name in outputs], **attributes),
        *(helper.make_node("Neg", [f"{name}_made"], [name]) for name in outputs),
    ]
    inputs = [("x", TensorProto.FLOAT, len(shapes[0]))]
    proto = model_of(nodes, inputs, outputs, dict(zip(names, constants, strict=True)))
    session, model = ReferenceEvaluator(proto), kinnor.onnx.load(proto)
    rebuilt = []
    monkeypatch.setattr(Following, "_rebuild", lambda self, step, *_: rebuilt.append(step))
    for shape in [*shapes, *shapes]:
        x = RNG.standard_normal(shape).astype(np.float32)
        found = model(x)
        for y, wanted in zip(found if n_outputs > 1 else [found], session.run(None, {"x": x}), strict=True):
            equal(y, wanted, 1e-5, 1e-5)
    assert not rebuilt
    assert len(built) == 1


@pytest.mark.parametrize(
    ("kind", "constants", "attributes"),
    [
        ("MaxPool", (), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("MaxPool", (), {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
        ("AveragePool", (), {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
        ("Conv", (WEIGHT.transpose(1, 0, 2, 3)[:, [0, 1, 2, 2]],), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", (WEIGHT,), {"strides": [2, 2], "output_shape": [12, 15]}),
        ("Resize", RESIZED, {"nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}),
        ("Resize", RESIZED, {"coordinate_transformation_mode": "align_corners"}),
        ("Resize", (np.float32([]), np.float32([1, 1, 1.5, 2])), {}),
    ],
)
def test_padding_that_follows_from_lengths_is_found_again(kind, constants, attributes):
    """Even and odd lengths need other padding. A model with a graph for one length gives what a new model gives."""
    names = [f"c{i}" for i in range(len(constants))]
    nodes = [helper.make_node("Abs", ["x"], ["z"]), helper.make_node(kind, ["z", *names], ["y"], **attributes)]
    proto = model_of(nodes, [("x", TensorProto.FLOAT, 4)], ["y"], dict(zip(names, constants, strict=True)))
    model = kinnor.onnx.load(proto)
    for shape in [*PLANES, (1, 4, 6, 7), *PLANES]:
        x = RNG.standard_normal(shape).astype(np.float32)
        equal(model(x), kinnor.onnx.load(proto)(x), 1e-6, 1e-6)
        if kind == "Resize":
            equal(model(x), ReferenceEvaluator(proto).run(None, {"x": x})[0], 1e-6, 1e-6)


def test_split_of_another_length_is_an_error():
    """The lengths of a split are constants: for an input of another length, nothing is left out silently."""
    nodes = [helper.make_node("Split", ["x", "lengths"], ["a", "b"], axis=1)]
    model = kinnor.onnx.load(model_of(nodes, [("x", TensorProto.FLOAT, 2)], "ab", {"lengths": np.int64([2, 3])}))
    for rows, columns in ((1, 5), (2, 5), (2, 6), (3, 5), (3, 4)):
        x = RNG.standard_normal((rows, columns)).astype(np.float32)
        if columns == 5:
            equal(model(x)[1], x[:, 2:])
        else:
            with pytest.raises(kinnor.onnx.OnnxError, match="add up to"):
                model(x)


def test_negative_padding_and_smaller_factors_fit_all_lengths(built):
    """Padding that cuts off, and a product with a constant matrix on the left."""
    matrix = RNG.standard_normal((2, 6)).astype(np.float32)
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["wide"]),
        helper.make_node("MatMul", ["matrix", "wide"], ["y"]),
    ]
    constants = {"matrix": matrix, "pads": np.int64([0, 2, -1, 1, -3, 2])}
    model = kinnor.onnx.load(model_of(nodes, [("x", TensorProto.FLOAT, 3)], ["y"], constants))
    for shape in ((1, 7, 4), (3, 7, 2), (2, 7, 9)):
        x = RNG.standard_normal(shape).astype(np.float32)
        equal(model(x), matrix @ np.pad(x[:, :-3, 1:], [(0, 1), (2, 0), (0, 2)]), 1e-5, 1e-5)
    assert len(built) == 1


def test_slices_without_elements_are_built_anew():
    """A slice that is empty for some lengths. Its readers get a constant then."""
    nodes = [
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["part"]),
        helper.make_node("Concat", ["part", "x"], ["y"], axis=0),
    ]
    constants = {"from": np.int64([3]), "to": np.int64([1 << 40]), "axis": np.int64([0])}
    model = kinnor.onnx.load(model_of(nodes, [("x", TensorProto.FLOAT, 2)], ["y"], constants))
    for rows in (5, 4, 3, 7, 2, 6):
        x = RNG.standard_normal((rows, 2)).astype(np.float32)
        equal(model(x), np.concatenate([x[3:], x]))


def test_inner_nodes_that_fit_all_lengths_do_not_free_their_loop():
    """The body of a loop reads an outer value of another length, and has a slice that fits every length."""
    body = helper.make_graph(
        [
            helper.make_node("Slice", ["outer", "from", "to", "axis"], ["part"]),
            helper.make_node("ReduceSum", ["part"], ["sum"], keepdims=0),
            helper.make_node("Add", ["state", "sum"], ["next"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, []),
        ],
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["outer"]),
        helper.make_node("Loop", ["times", "", "zero"], ["y"], body=body),
    ]
    constants = {
        "times": np.int64(40),
        "zero": np.float32(0),
        "from": np.int64([1]),
        "to": np.int64([1 << 40]),
        "axis": np.int64([0]),
    }
    model = kinnor.onnx.load(model_of(nodes, [("x", TensorProto.FLOAT, 2)], ["y"], constants))
    for rows in (5, 3, 8, 2):
        x = RNG.standard_normal((rows, 2)).astype(np.float32)
        equal(model(x), 40 * np.abs(x[1:]).sum(), 1e-5, 1e-5)


@pytest.mark.parametrize("is_wide", [False, True])
def test_elements_along_an_axis_of_another_length(is_wide, built):
    """`GatherElements` and `ScatterElements` along an axis of several lengths, and with indices of several lengths."""
    nodes = [
        helper.make_node("GatherElements", ["x", "places"], ["part"], axis=1),
        helper.make_node("Neg", ["part"], ["changed"]),
        helper.make_node("ScatterElements", ["x", "places", "changed"], ["y"], axis=1),
        helper.make_node("Add", ["y", "one"], ["z"]),
    ]
    inputs = [("x", TensorProto.FLOAT, 3), ("places", TensorProto.INT64, 3)]
    model = kinnor.onnx.load(model_of(nodes, inputs, ["z"], {"one": np.float32(1)}))
    for shape, n in (((2, 6, 3), 4), ((2, 9, 3), 4), ((2, 5, 3), 3), ((1, 7, 2), 4), ((3, 7, 2), 4), ((2, 9, 3), 4)):
        x = RNG.standard_normal(shape).astype(np.float32)
        rows = shape[0] if is_wide else 1
        places = np.argsort(RNG.random((rows, shape[1], shape[2])), axis=1)[:, :n]
        wanted = x.copy()
        for row, column in np.ndindex(rows, shape[2]):
            wanted[row, places[row, :, column], column] *= -1
        equal(model(x, places), wanted + 1)
    assert len(built) == 1
