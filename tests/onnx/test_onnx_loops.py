"""Loops of ONNX that run their bodies once for each step, compared with ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_runtime import compared, model_of

import kinnor as nn
import kinnor.onnx

RNG = np.random.default_rng(0)


def named(name, kind=TensorProto.FLOAT, shape=None):
    """Describes an input or output of a body."""
    return helper.make_tensor_value_info(name, kind, shape)


def body_of(nodes, inputs, outputs, **held):
    """Returns the body of a loop. Keyword arguments are its constants by name."""
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, constants)


def counted(*states):
    """Returns the first inputs of the body of a `Loop`, and its states."""
    return [named("i", TensorProto.INT64, []), named("goes_on", TensorProto.BOOL, []), *map(named, states)]


def cell():
    """Returns nodes of a model with a recurrent loop, as TensorFlow's converter writes it, and its constants.

    The loop has no count: it ends when a counter among its states reaches the length. The weights are states, too.
    """
    body = body_of(
        [
            helper.make_node("Gather", ["x", "t"], ["element"], axis=0),
            helper.make_node("MatMul", ["element", "w"], ["a"]),
            helper.make_node("MatMul", ["h", "r"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["next"], ["all"]),
            helper.make_node("Add", ["t", "one"], ["next_t"]),
            helper.make_node("Cast", ["next_t"], ["real_t"], to=1),
            helper.make_node("Cast", ["n"], ["real_n"], to=1),
            helper.make_node("Less", ["real_t", "real_n"], ["k"]),
        ],
        [
            *counted(),
            named("t", TensorProto.INT32, []),
            named("h"),
            named("n", TensorProto.INT32, []),
            named("w"),
            named("r"),
        ],
        [
            named("k", TensorProto.BOOL, []),
            named("next_t", TensorProto.INT32, []),
            named("next"),
            named("n", TensorProto.INT32, []),
            named("w"),
            named("r"),
            named("all"),
        ],
        one=np.int32(1),
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Gather", ["lengths", "first"], ["n0"], axis=0),
        helper.make_node("Less", ["t0", "n0"], ["starts"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0),
        helper.make_node("MatMul", ["sums", "v"], ["h0"]),
        helper.make_node(
            "Loop", ["", "starts", "t0", "h0", "n0", "w0", "r0"], ["end_t", "end", "n1", "w1", "r1", "y"], body=body
        ),
    ]
    held = {
        "first": np.array(0),
        "axes": np.array([0]),
        "t0": np.int32(0),
        **{name: (RNG.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in WEIGHTS.items()},
    }
    return nodes, held


WEIGHTS = {"v": (6, 5), "w0": (6, 5), "r0": (5, 5)}
"""Shapes of the weights of the recurrent loop."""


def images(*shapes):
    """Returns feeds of random arrays `x`."""
    return [{"x": RNG.standard_normal(shape).astype(np.float32)} for shape in shapes]


def functions_of(model):
    """Returns the number of functions in each graph of a model."""
    counts = []
    for graph in model._cache.graphs.values():
        found = set()
        for root in graph.roots:
            root.visit(found.add)
        counts.append(len(found))
    return counts


def test_a_recurrent_loop_of_any_length():
    """The loop counts for itself, and products of its inputs are the same for all steps."""
    nodes, held = cell()
    feeds = images((7, 2, 6), (12, 2, 6), (4, 3, 6), (7, 2, 6), (9, 1, 6), (1, 1, 6), (30, 1, 6))
    compared(nodes, feeds, ["y", "end", "end_t"], held)


def test_graphs_of_long_loops_are_as_small_as_of_short_ones():
    nodes, held = cell()
    (short,), (long,) = ([x] for x in images((10, 1, 6), (6000, 1, 6)))
    proto = model_of(nodes, short, ["y"], held)
    counts = []
    for given in (short, long):
        model = kinnor.onnx.Model(proto)
        y = model(**given)
        counts += functions_of(model)
        assert y.shape == (len(given["x"]), 1, 5)
    assert counts[0] == counts[1] < 20


def scan_of(**attributes):
    """Returns a `Scan` over two sequences that exchanges two states in each step."""
    body = body_of(
        [
            helper.make_node("Mul", ["p", "scale"], ["q"]),
            helper.make_node("Add", ["b", "q"], ["next_a"]),
            helper.make_node("Identity", ["a"], ["next_b"]),
            helper.make_node("Sub", ["a", "o"], ["first"]),
            helper.make_node("Identity", ["p"], ["second"]),
        ],
        list(map(named, ("a", "b", "p", "o"))),
        list(map(named, ("next_a", "next_b", "first", "second"))),
    )
    return helper.make_node("Scan", ["a0", "b0", "x", "z"], ["a", "b", "y", "u"], body=body, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [0, 1], "scan_output_directions": [1, 0]},
        {"scan_input_axes": [1, -1], "scan_output_axes": [-1, 1]},
        {"scan_input_axes": [1, 1], "scan_input_directions": [1, 1], "scan_output_axes": [1, 0]},
    ],
)
def test_scans_along_axes_in_both_directions(attributes):
    feeds = []
    for n in (5, 8, 5, 3):
        shapes = [(n, n), (n, n)]
        made = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in zip("xz", shapes, strict=True)}
        feeds.append({**made, "scale": RNG.standard_normal(n).astype(np.float32)})
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["a0"], keepdims=0),
        helper.make_node("ReduceMax", ["z"], ["b0"], axes=[0], keepdims=0),
        scan_of(num_scan_inputs=2, **attributes),
    ]
    compared(nodes, feeds, ["a", "b", "y", "u"], {"axis": np.array([0])})


def loop(nodes, outputs, states=("v",), stacked=(), **held):
    """Returns a `Loop` of as many steps as `x` has rows, whose states begin as `x`."""
    body = body_of(nodes, counted(*states), [named("k", TensorProto.BOOL, []), *map(named, outputs)], **held)
    starts = ["x"] * len(states)
    return [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Squeeze", ["shape"], ["n"]),
        helper.make_node("Loop", ["n", "", *starts], [*(f"end_{name}" for name in states), *stacked], body=body),
    ]


def test_states_that_are_exchanged():
    """States take the values of one another, of the input and of a constant, as they were before the step."""
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["k"]),
        helper.make_node("Add", ["a", "x"], ["sum"]),
        helper.make_node("Reshape", ["b", "same"], ["moved"]),
    ]
    made = loop(nodes, ["b", "moved", "sum", "c"], ("a", "b", "c"), ("all",), same=np.array([0, 0]))
    compared(made, images((4, 3), (6, 3), (4, 3), (3, 5)), ["end_a", "end_b", "end_c", "all"])


def test_loops_in_loops():
    """The inner loop reads values of both outer graphs."""
    inner = body_of(
        [
            helper.make_node("Identity", ["more"], ["l"]),
            helper.make_node("Cast", ["j"], ["real"], to=1),
            helper.make_node("Mul", ["v", "half"], ["scaled"]),
            helper.make_node("Add", ["w", "scaled"], ["sum"]),
            helper.make_node("Add", ["sum", "real"], ["next_w"]),
        ],
        [named("j", TensorProto.INT64, []), named("more", TensorProto.BOOL, []), named("w")],
        [named("l", TensorProto.BOOL, []), named("next_w"), named("sum")],
        half=np.float32(0.5),
    )
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["k"]),
        helper.make_node("Loop", ["n", "", "x"], ["inner", "sums"], body=inner),
        helper.make_node("ReduceMean", ["sums"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("Tanh", ["mean"], ["next"]),
    ]
    compared(loop(nodes, ["next", "inner"], stacked=("all",)), images((4, 2), (6, 2), (4, 2)), ["end_v", "all"])


def test_shapes_that_depend_on_the_step():
    """Such bodies are built for each step."""
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["k"]),
        helper.make_node("Concat", ["v", "x"], ["next"], axis=0),
    ]
    compared(loop(nodes, ["next"]), images((3, 2), (4, 2), (3, 2)), ["end_v"])
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["k"]),
        helper.make_node("Unsqueeze", ["i", "zero"], ["start"]),
        helper.make_node("Slice", ["x", "start", "most"], ["rest"]),
        helper.make_node("ReduceSum", ["rest", "zero"], ["sum"]),
        helper.make_node("Add", ["v", "sum"], ["next"]),
    ]
    held = {"zero": np.array([0]), "most": np.array([2**31])}
    compared(loop(nodes, ["next"], **held), images((3, 2), (4, 2), (3, 2)), ["end_v"])


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_short_loops(length):
    nodes = [helper.make_node("Identity", ["goes_on"], ["k"]), helper.make_node("Add", ["v", "one"], ["next"])]
    body = body_of(nodes, counted("v"), [named("k", TensorProto.BOOL, []), named("next")])
    made = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    compared(made, images((2, 2), (3, 2)), ["y"], {"n": np.array(length), "one": np.float32(1)})


def test_integers_of_a_loop_are_exact_or_refused():
    """A state that doubles in each step is exact up to 2^53, and an error beyond."""
    nodes = [helper.make_node("Identity", ["goes_on"], ["k"]), helper.make_node("Add", ["v", "v"], ["next"])]
    inputs = [*counted(), named("v", TensorProto.INT64)]
    outputs = [named("k", TensorProto.BOOL, []), named("next", TensorProto.INT64)]
    made = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body_of(nodes, inputs, outputs))]
    model = kinnor.onnx.Model(model_of(made, {"x": np.array([3])}, ["y"], {"n": np.array(40)}))
    for start in (3, -5, 3):
        assert model(np.array([start])).tolist() == [start << 40]
    with pytest.raises(kinnor.onnx.OnnxError, match="2\\^53"):
        model(np.array([1 << 15]))
    assert model(np.array([1])).tolist() == [1 << 40]


def test_parameters_of_a_loop_can_be_changed():
    """Weights that only the body reads are freed, reloaded and followed."""
    nodes, held = cell()
    (given,) = images((9, 2, 6))
    proto = model_of(nodes, given, ["y"], held)
    model = kinnor.onnx.Model(proto)
    first = model(**given)
    model.get_parameters()["r0"].d *= 0
    without = model(**given)
    assert np.abs(first - without).max() > 1e-3
    np.testing.assert_allclose(model(**given), without, atol=1e-6)
    x = nn.Variable.from_numpy_array(given["x"], need_grad=True)
    x.grad.zero()
    y = model(x)
    y.forward()
    y.backward()
    assert np.abs(x.g).max() > 0
    np.testing.assert_allclose(y.d, without, atol=1e-5)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_recurrent_layers_of_whole_and_cut_sequences(kind, layout):
    """A graph for whole sequences takes others of another length, but not shorter ones in a batch."""
    n = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind] * 4
    nodes = [
        helper.make_node("Tanh", ["x"], ["z"]),
        helper.make_node(kind, ["z", "w", "r", "", "lengths"], ["y", "end"], hidden_size=4, linear_before_reset=1),
    ]
    if kind != "GRU":
        del nodes[1].attribute[1]
    feeds = []
    for steps, lengths in ((5, (5, 5)), (7, (7, 7)), (7, (3, 7)), (6, (6, 6)), (4, (4, 4)), (4, (4, 2)), (5, (5,))):
        x = RNG.standard_normal((steps, len(lengths), 3)).astype(np.float32)
        feeds.append({"x": x, "lengths": np.array(lengths, np.int32)})
    held = {
        "w": RNG.standard_normal((1, n, 3)).astype(np.float32),
        "r": RNG.standard_normal((1, n, 4)).astype(np.float32),
    }
    if not layout:
        compared(nodes, feeds, ["y", "end"], held)
        return
    proto = model_of(nodes, feeds[0], ["y", "end"], held)
    wanted = [kinnor.onnx.Model(proto)(**given) for given in feeds]
    nodes[1].attribute.append(helper.make_attribute("layout", 1))
    for given in feeds:
        given["x"] = np.ascontiguousarray(given["x"].transpose(1, 0, 2))
    model = kinnor.onnx.Model(model_of(nodes, feeds[0], ["y", "end"], held))
    for given, (y, end) in zip(feeds, wanted, strict=True):
        for _ in range(2):
            found = model(**given)
            np.testing.assert_allclose(found[0], y.transpose(2, 0, 1, 3), atol=1e-6)
            np.testing.assert_allclose(found[1], end.transpose(1, 0, 2), atol=1e-6)
