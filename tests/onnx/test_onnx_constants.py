"""ONNX: constants of a model, parameters, and values that depend on each call."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor as nn
import kinnor.onnx
import kinnor.solvers as S

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
"""The declared input of models: rows of two numbers."""
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
"""The declared output of models, of any shape."""


def loaded(nodes, inputs=(X,), initializers=()):
    """Returns a model of these nodes."""
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "net", list(inputs), [Y], held)
    return kinnor.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def constant(name, array):
    """Returns a constant node."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array), name))


def branch(factor):
    """Returns a branch that multiplies `x` by a factor."""
    nodes = [constant(f"k{factor}", np.float32(factor)), helper.make_node("Mul", ["x", f"k{factor}"], [f"y{factor}"])]
    return helper.make_graph(
        nodes, "branch", [], [helper.make_tensor_value_info(f"y{factor}", TensorProto.FLOAT, None)]
    )


def if_on_a_shape():
    """Returns a model with an `If` on the rank of its input, and the same in NumPy."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Size", ["s"], ["rank"]),
        constant("two", np.int64(2)),
        helper.make_node("Equal", ["rank", "two"], ["flag"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch(2), else_branch=branch(3)),
    ]
    return loaded(nodes), lambda x: 2 * x


def if_within_if():
    """Returns a model with an `If` within an `If`, and the same in NumPy."""
    inner = helper.make_node("If", ["flag"], ["inner"], then_branch=branch(2), else_branch=branch(3))
    value = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    outer = helper.make_graph([inner], "outer", [], [value])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=outer, else_branch=branch(5))
    return loaded([constant("flag", np.array(True)), node]), lambda x: 2 * x


def branch_that_is_an_outer_value():
    """Returns a model with an `If` whose branch just returns an outer value, and the same in NumPy."""
    outer = helper.make_graph([], "outer", [], [helper.make_tensor_value_info("h", TensorProto.FLOAT, None)])
    nodes = [
        constant("flag", np.array(True)),
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=outer, else_branch=branch(3)),
    ]
    return loaded(nodes), lambda x: -x


def adding(condition):
    """Returns the body of a `Loop` that adds `x` to its value. The node `condition` says if it goes on."""
    return helper.make_graph(
        [helper.make_node("Add", ["before", "x"], ["after"]), condition],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
        ],
    )


def loop_of_known_length():
    """Returns a model with a `Loop` of constant length, and the same in NumPy."""
    body = adding(helper.make_node("Identity", ["go"], ["goes"]))
    nodes = [
        constant("times", np.int64(3)),
        constant("start", np.array(True)),
        constant("zero", np.zeros((1, 2), np.float32)),
        helper.make_node("Loop", ["times", "start", "zero"], ["y"], body=body),
    ]
    return loaded(nodes), lambda x: 3 * x


def scan_over_constants():
    """Returns a model with a `Scan` over a constant, and the same in NumPy."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["each", "x"], ["made"])],
        "body",
        [helper.make_tensor_value_info("each", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, None)],
    )
    nodes = [
        constant("all", np.array([[1], [2], [3]], np.float32)),
        helper.make_node("Scan", ["all"], ["y"], body=body, num_scan_inputs=1),
    ]
    return loaded(nodes), lambda x: np.stack([x, 2 * x, 3 * x])


CAPTURES = [if_on_a_shape, if_within_if, branch_that_is_an_outer_value, loop_of_known_length, scan_over_constants]
"""Makers of models whose subgraphs read outer values. Each returns the model and its function in NumPy."""


@pytest.mark.parametrize("make", CAPTURES)
@pytest.mark.parametrize("asks", [False, True], ids=["folded", "parameters"])
def test_a_graph_inside_of_a_node_reads_outer_values_in_each_call(make, asks):
    """Branches and loop bodies read the outer values of the current call."""
    model, expected = make()
    if asks:
        model.get_parameters()
    first = np.array([[1, -2]], np.float32)
    for x in (first, first * 5, np.array([[3, 4], [5, 6]], np.float32), first):
        np.testing.assert_array_equal(model(x), expected(x))


@pytest.mark.parametrize("make", CAPTURES)
def test_gradients_reach_outer_values(make):
    """Gradients flow to variables that inner graphs read from the outer graph."""
    model, expected = make()
    x = nn.Variable.from_numpy_array(np.array([[1.0, -2.0]]), need_grad=True)
    y = model(x)
    y.forward()
    x.grad.zero()
    y.backward()
    one = np.ones((1, 2), np.float32)
    wanted = expected(one)
    np.testing.assert_array_equal(x.g, wanted.sum(0) if wanted.ndim == 3 else wanted)


def test_a_flag_that_is_an_input_chooses_in_each_call():
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch(2), else_branch=branch(3))
    model = loaded([node], [X, flag])
    for value, chosen in [(1, True), (5, True), (5, False), (7, False), (1, True)]:
        x = np.full((1, 2), value, np.float32)
        np.testing.assert_array_equal(model(x, np.array(chosen)), x * (2 if chosen else 3))


def test_a_negative_length_is_symbolic():
    """A length of -1 in a file is an open length."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 2])
    model = loaded([helper.make_node("Neg", ["x"], ["y"])], [x])
    assert model.shapes == {"x": (None, 2)}
    for n in (1, 3):
        assert model(np.ones((n, 2), np.float32)).shape == (n, 2)


def test_exponents_and_small_numbers_are_no_parameters():
    """Exponents, epsilons, masks and bounds in a file are not trained."""
    w = np.eye(2, dtype=np.float32) + 1
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Pow", ["h", "two"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["mean"], axes=[1]),
        helper.make_node("Add", ["mean", "eps"], ["above"]),
        helper.make_node("Sqrt", ["above"], ["root"]),
        helper.make_node("Div", ["h", "root"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["masked"]),
        helper.make_node("Clip", ["masked", "low"], ["y"]),
    ]
    settings = {
        "two": np.full(2, 2, np.float32),
        "eps": np.float32(1e-5),
        "mask": np.array([[0, -3e38]], np.float32),
        "low": np.float32(-5),
    }
    model = loaded(nodes, initializers={"w": w, **settings})
    parameters = model.get_parameters()
    assert list(parameters) == ["w"]
    solver = S.Sgd(0.1)
    solver.set_parameters(parameters)
    y = model(nn.Variable.from_numpy_array(np.array([[1.0, -2.0]])))
    y.forward()
    solver.zero_grad()
    y.backward()
    solver.update()
    assert np.isfinite(parameters["w"].d).all()


def test_weights_of_constant_nodes_are_parameters():
    """`Constant` nodes that feed layers become trainable parameters; tables do not."""
    w = np.arange(4, dtype=np.float32).reshape(2, 2)
    nodes = [
        constant("w", w),
        constant("shift", np.array([1, 2], np.float32)),
        constant("table", np.zeros((1, 64), np.float32)),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "shift"], ["moved"]),
        helper.make_node("Concat", ["moved", "table"], ["y"], axis=1),
    ]
    model = loaded(nodes)
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_allclose(model(x)[:, :2], x @ w + [1, 2])
    assert set(model.get_parameters()) == {"w", "table"}
    model.get_parameters()["w"].d *= 2
    np.testing.assert_allclose(model(x)[:, :2], x @ w * 2 + [1, 2])
    proto, arrays = model.written()
    assert {"w", "table"} <= set(arrays) and "w" not in {node.output[0] for node in proto.graph.node}


def test_a_bias_of_one_element_is_a_parameter():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    model = loaded(nodes, initializers={"w": np.ones((2, 1), np.float32), "b": np.ones(1, np.float32)})
    assert set(model.get_parameters()) == {"w", "b"}


def test_a_number_in_the_condition_of_a_loop_leaves_one_graph():
    body = adding(helper.make_node("Less", ["limit", "limit"], ["goes"]))
    nodes = [
        constant("times", np.int64(3)),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["lengths"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["lengths"], ["length"], keepdims=0),
        helper.make_node("Less", ["limit", "length"], ["start"]),
        helper.make_node("Loop", ["times", "start", "x"], ["y"], body=body),
    ]
    model = loaded(nodes, initializers={"limit": np.float32(0)})
    x = np.ones((1, 2), np.float32)
    for k in (1, 2, 3):
        np.testing.assert_array_equal(model(x * k), 2 * k * x)
    assert not model._is_computed_at_once and len(model._cache.graphs) == 1


def test_computed_lengths_are_exact():
    """Integer arithmetic on lengths is exact."""
    n = helper.make_tensor_value_info("n", TensorProto.INT64, [1])
    nodes = [
        helper.make_node("Mul", ["n", "rate"], ["large"]),
        helper.make_node("Div", ["large", "old"], ["length"]),
        helper.make_node("Sub", ["large", "one"], ["less"]),
        helper.make_node("Mod", ["less", "old"], ["rest"]),
        helper.make_node("Concat", ["length", "rest"], ["z"], axis=0),
        helper.make_node("Cast", ["z"], ["y"], to=TensorProto.INT64),
    ]
    held = {"rate": np.array([320]), "old": np.array([441]), "one": np.array([1])}
    arrays = [numpy_helper.from_array(array, name) for name, array in held.items()]
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph(nodes, "net", [n], [y], arrays)
    model = kinnor.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    for samples in (22050, 22050 * 3, 22050 * 3600, 10**12 + 7):
        large = samples * 320
        assert model(np.array([samples])).tolist() == [large // 441, (large - 1) % 441]


def quantized_product(rng):
    """Returns the nodes and constants of a product with a weight of 8-bit levels."""
    nodes = [
        helper.make_node("DequantizeLinear", ["levels", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["y"]),
    ]
    levels = rng.integers(-127, 128, (64, 1024)).astype(np.int8)
    return nodes, {"levels": levels, "scale": np.float32(0.01)}


def recurrent_layer(rng):
    """Returns the nodes and constants of an LSTM."""
    nodes = [
        constant("axes", np.array([1])),
        helper.make_node("Unsqueeze", ["x", "axes"], ["steps"]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["y"], hidden_size=64),
    ]
    held = {"w": rng.standard_normal((1, 256, 64)), "r": rng.standard_normal((1, 256, 64))}
    held["b"] = rng.standard_normal((1, 512))
    return nodes, {key: (array / 8).astype(np.float32) for key, array in held.items()}


@pytest.mark.parametrize("make", [quantized_product, recurrent_layer])
def test_graphs_of_all_shapes_share_weights_and_what_follows_from_them(make):
    """Calls with new shapes add little memory: folded weights are shared."""
    rng = np.random.default_rng(3)
    nodes, held = make(rng)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    model, other = loaded(nodes, [x], held), loaded(nodes, [x], held)
    other.get_parameters()  # it is not folded
    arrays = [rng.standard_normal((n, 64)).astype(np.float32) for n in range(1, 9)]
    wanted = [other(array) for array in arrays]
    first = model(arrays[0])
    before = nn.memory_stats()["live"]
    for k in 8 * [*range(8)]:
        np.testing.assert_allclose(model(arrays[k]), wanted[k], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model(arrays[0]), first)
    assert len(model._cache.graphs) == 8
    assert nn.memory_stats()["live"] - before < 2 * 4 * 64 * 1024  # the weight is packed once
    weights = []
    for graph in model._cache.graphs.values():
        graph.roots[0].visit(
            lambda f: weights.extend(x.data for x in f.inputs if x.parent is None and x.size > 1 << 13)
        )
    assert len(weights) == 8
    assert all(weight == weights[0] for weight in weights)
