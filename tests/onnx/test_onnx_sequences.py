"""ONNX: sequences of tensors and optional values, inside of models and as their inputs and outputs."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx

FLOAT = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
"""The type of a float tensor of any shape."""
SEQUENCE = helper.make_sequence_type_proto(FLOAT)
"""The type of a sequence of float tensors."""
KINDS = {
    "x": FLOAT,
    "y": FLOAT,
    "g": FLOAT,
    "xs": SEQUENCE,
    "ys": SEQUENCE,
    "maybe": helper.make_optional_type_proto(FLOAT),
}
"""The type of each input and output of the models, by name."""
KINDS["has"] = helper.make_tensor_type_proto(TensorProto.BOOL, [])


def made(nodes, inputs, outputs, **constants):
    """Returns a model whose inputs and outputs have the types that `KINDS` lists for their names."""
    held = [helper.make_tensor(name, TensorProto.INT64, np.shape(v), np.ravel(v)) for name, v in constants.items()]
    sides = ([helper.make_value_info(name, KINDS[name]) for name in names] for names in (inputs, outputs))
    graph = helper.make_graph(nodes, "net", *sides, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def node(kind, inputs, output, **attributes):
    """Returns a node. `inputs` are names separated by spaces."""
    return helper.make_node(kind, inputs.split(), [output], **attributes)


SPLIT = made(
    [
        node("SplitToSequence", "x lengths", "parts", axis=1),
        node("SequenceErase", "parts one", "less"),
        node("SequenceAt", "parts one", "middle"),
        node("Neg", "middle", "minus"),
        node("SequenceInsert", "less minus zero", "more"),
        node("ConcatFromSequence", "more", "y", axis=-1),
        node("Identity", "more", "ys"),
    ],
    ["x"],
    ["y", "ys"],
    lengths=[1, 3, 2],
    one=1,
    zero=0,
)
"""A model that splits an array into a sequence, edits the sequence, and joins it."""


def test_sequences_inside_of_a_model():
    """A model with a sequence inside and as an output gives the same as onnxruntime, and has gradients."""
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(SPLIT.SerializeToString())
    wanted, parts = session.run(None, {"x": x})
    model = kinnor.onnx.Model(SPLIT)
    for _ in range(2):
        y, ys = model(x)
        np.testing.assert_array_equal(y, wanted)
        assert [part.tolist() for part in ys] == [part.tolist() for part in parts]
    v = nn.Variable.from_numpy_array(x, need_grad=True)
    y, ys = model(v)
    loss = F.sum(y * 2) + F.sum(ys[0])
    loss.forward()
    v.grad.zero()
    loss.backward()
    assert v.g.tolist() == [[2, -3, -3, -3, 2, 2]] * 4


@pytest.mark.parametrize(("new_axis", "axis"), [(0, 1), (0, -2), (1, 0), (1, -1)])
def test_sequences_that_models_take(new_axis, axis):
    """A model takes a list or tuple of arrays or variables, of any length."""
    model = kinnor.onnx.Model(
        made([node("ConcatFromSequence", "xs", "y", axis=axis, new_axis=new_axis)], ["xs"], ["y"])
    )
    join = np.stack if new_axis else np.concatenate
    rng = np.random.default_rng(1)
    for count in (1, 3, 2, 3):
        xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(count)]
        np.testing.assert_array_equal(model(xs), join(xs, axis=axis))
        np.testing.assert_array_equal(model(xs=tuple(xs)), join(xs, axis=axis))
    variables = [nn.Variable.from_numpy_array(x) for x in xs]
    y = model(variables)
    y.forward()
    np.testing.assert_array_equal(y.d, join(xs, axis=axis))
    for wrong, words in ((xs[0], "expected a list of arrays as input 'xs', got ndarray"), (None, "got None")):
        with pytest.raises(nn.CallError, match=words):
            model(wrong)
    with pytest.raises(kinnor.onnx.OnnxError, match="a sequence of one tensor at least, got an empty one"):
        model([])


def test_positions_that_are_computed():
    """Positions out of range, values of the wrong kind and wrong lengths are refused."""
    built = made([node("SequenceConstruct", "x x", "xs"), node("SequenceAt", "xs place", "y")], ["x"], ["y"], place=2)
    with pytest.raises(kinnor.onnx.OnnxError, match="SequenceAt: expected a place from -2 to 1, got 2"):
        kinnor.onnx.Model(built)(np.ones(2, np.float32))
    wrong = made([node("SequenceAt", "x place", "y")], ["x"], ["y"], place=0)
    with pytest.raises(kinnor.onnx.OnnxError, match="SequenceAt: expected a sequence, got a tensor of shape"):
        kinnor.onnx.Model(wrong)(np.ones(2, np.float32))
    wrong = made([node("SequenceConstruct", "x", "xs"), node("Neg", "xs", "y")], ["x"], ["y"])
    with pytest.raises(kinnor.onnx.OnnxError, match="expected a tensor, got a sequence of 1"):
        kinnor.onnx.Model(wrong)(np.ones(2, np.float32))
    model = kinnor.onnx.Model(made([node("SplitToSequence", "x one", "ys")], ["x"], ["ys"], one=[1, 1]))
    assert [y.tolist() for y in model(np.ones(2, np.float32))] == [[1], [1]]
    with pytest.raises(kinnor.onnx.OnnxError, match="expected lengths that add up to 3"):
        model(np.ones(3, np.float32))


def test_optional_values():
    """A model takes an array or None as an optional input. It refuses None where it needs an array."""
    nodes = [node("OptionalHasElement", "maybe", "has"), node("Identity", "maybe", "still")]
    built = made(nodes, ["maybe"], ["has"])
    built.graph.output.append(helper.make_value_info("still", KINDS["maybe"]))
    model = kinnor.onnx.Model(built)
    x = np.ones((2, 2), np.float32)
    for given in (x, None, x):
        has, still = model(given)
        assert has == (given is not None)
        assert (still is None) == (given is None)
    element = kinnor.onnx.Model(made([node("OptionalGetElement", "maybe", "y")], ["maybe"], ["y"]))
    np.testing.assert_array_equal(element(x), x)
    with pytest.raises(kinnor.onnx.OnnxError, match="an optional one that is absent"):
        element(None)
    tensor = kinnor.onnx.Model(made([node("Neg", "x", "y")], ["x"], ["y"]))
    with pytest.raises(nn.CallError, match="expected an array as input 'x', got None"):
        tensor(None)
    nested = helper.make_sequence_type_proto(SEQUENCE)
    built = made([node("Neg", "x", "y")], ["x"], ["y"])
    built.graph.input.append(helper.make_value_info("z", nested))
    with pytest.raises(nn.UnsupportedError, match="a tensor or a sequence of tensors as input 'z'"):
        kinnor.onnx.Model(built)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_ties_between_two_pixels_round_to_even(padding, aligned):
    sampled = node("GridSample", "x g", "y", mode="nearest", padding_mode=padding, align_corners=aligned)
    built = made([sampled], ["x", "g"], ["y"])
    rng = np.random.default_rng(0)
    for shape, places in (((2, 3, 5, 4), (2, 6, 7, 2)), ((1, 2, 2, 3), (1, 4, 4, 2))):
        x, g = rng.standard_normal(shape).astype(np.float32), (rng.integers(-40, 41, places) / 20).astype(np.float32)
        wanted = onnxruntime.InferenceSession(built.SerializeToString()).run(None, {"x": x, "g": g})[0]
        np.testing.assert_array_equal(kinnor.onnx.Model(built)(x, g), wanted)
